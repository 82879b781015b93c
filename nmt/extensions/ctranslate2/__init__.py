"""CTranslate2: export, import and comparison of models, and search with it as an engine."""

from typing import Final

CTRANSLATE2_KIND: Final = "ctranslate2"  # kind of an exported folder in its manifest
