"""Language codes."""

import re
from functools import cache
from typing import Final

# Languages written without spaces between words or sentences.
UNSPACED_LANGUAGES: Final = frozenset(("zh", "ja", "th", "lo", "km", "my", "yue"))


@cache
def base_language(code: str) -> str:
    """The language of a code without its region or script: `pt` for `pt_BR` and `pt-BR`."""
    return re.split("[-_]", code.lower())[0]
