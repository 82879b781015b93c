"""Export of trained models to other formats and engines, each checked."""

from typing import Final

CTRANSLATE2_KIND: Final = "ctranslate2"  # of an exported folder, in its manifest
