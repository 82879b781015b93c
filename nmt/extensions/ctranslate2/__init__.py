"""CTranslate2: export, import and comparison of models, and an engine that searches with it."""

from typing import Final

CTRANSLATE2_KIND: Final = "ctranslate2"  # the `kind` in the manifest of an exported folder
