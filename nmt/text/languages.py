"""Codes of languages."""

import re
from functools import cache
from typing import Final

# Without spaces between words or sentences.
UNSPACED_LANGUAGES: Final = frozenset(("zh", "ja", "th", "lo", "km", "my", "yue"))


@cache
def base_language(code: str) -> str:
    """The language of a code with region or script: `pt` for `pt_BR` and `pt-BR`."""
    return re.split("[-_]", code.lower())[0]
