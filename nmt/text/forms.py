"""Unicode forms: which characters of a text a model sees. To add a form, write a function and list it in `UNICODE_FORMS`."""

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

# Placeholders for what sentencepiece cannot preserve: its own space mark, and a space followed by another space. They never
# occur in text, because nmt.text.corpus turns control characters into spaces. Each maps to the text that it stands for, and to
# the text that replaces it if the vocabulary lacks it.
SIGNS: Final = {"\x02": ("\u2581", " "), "\x03": (" ", "")}
_WRITTEN: Final = str.maketrans({sign: text for sign, (text, _) in SIGNS.items()})
SIGNED_FORMS: Final = ("folded", "exact")


@cache
def _foldings() -> tuple[re.Pattern[str], dict[int, str], re.Pattern[str]]:
    """The content of folded.toml: the pattern to search for, the replacements of characters, and the pattern to remove."""
    import tomllib  # imported only when needed, because ASCII text never needs it

    tables = tomllib.loads(Path(__file__).with_name("folded.toml").read_text(encoding="utf-8"))
    variants, invisible, joined = ("".join(tables[name].values()) for name in ("variants", "invisible", "joined"))
    plain: dict[str, str] = {}
    for character in re.findall(f"[{variants}]", "".join(map(chr, range(0x80, 0x1F000)))):
        parts = re.sub("<.*> ", "", unicodedata.decomposition(character)).split()
        if parts == ["0020"] or (parts and "0020" not in parts):  # excludes an accent on a space
            plain[character] = "".join(chr(int(part, 16)) for part in parts)
    table = str.maketrans(plain | tables["others"])
    # Some replacements are replaced again: U+FE19 becomes U+2026, which becomes three dots.
    twice = {code: text.translate(table) for code, text in table.items()}
    special = re.compile(f"[{variants}{invisible}{''.join(tables['others'])}\u200c\u200d]")
    return special, twice, re.compile(f"[{invisible}]|(?<![{joined}])[\u200c\u200d]")


@lru_cache(4096)  # each line is folded twice: to encode it, and to count the lines that folding changes
def folded(text: str) -> str:
    """NFC, with look-alike variants replaced by plain characters, and invisible characters removed."""
    if text.isascii():
        return text
    special, plain, removed = _foldings()
    return unicodedata.normalize("NFC", removed.sub("", text.translate(plain)) if special.search(text) else text)


def exact(text: str) -> str:
    """The unchanged text, except for SIGNS that sentencepiece needs. Leading and trailing spaces are stripped."""
    text = text.strip(" ").replace("\u2581", "\x02")
    return re.sub(" (?= )", "\x03", text) if "  " in text else text


def as_written(text: str) -> str:
    """The result of `folded` or `exact`, with the original characters in place of SIGNS."""
    return text.translate(_WRITTEN) if any(sign in text for sign in SIGNS) else text


UNICODE_FORMS: Final[Mapping[str, Callable[[str], str]]] = {
    "folded": folded,
    "exact": exact,
    "nfc": partial(unicodedata.normalize, "NFC"),  # `e` and a combining accent become one character
    "nfkc": partial(unicodedata.normalize, "NFKC"),  # ligatures, full-width and circled characters also become plain
    "none": str,
}
if TYPE_CHECKING:
    UnicodeForm = str
else:
    UnicodeForm = Literal[tuple(UNICODE_FORMS)]  # the choices of `--normalization`
