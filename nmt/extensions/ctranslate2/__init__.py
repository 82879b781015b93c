"""CTranslate2: models exported for it, read back, compared with ours, and searched by it."""

from typing import Final

CTRANSLATE2_KIND: Final = "ctranslate2"  # of an exported folder, in its manifest
