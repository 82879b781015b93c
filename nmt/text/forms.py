"""Unicode forms: which characters of a text a model sees. To add one, write a function and name it in `UNICODE_FORMS`."""

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

# Signs for what sentencepiece cannot keep: its own mark of a space, and a space before another one. No text has them, because
# nmt.text.corpus makes control characters spaces. To each, what it stands for, and what a vocabulary without it reads.
SIGNS: Final = {"\x02": ("\u2581", " "), "\x03": (" ", "")}
_WRITTEN: Final = str.maketrans({sign: text for sign, (text, _) in SIGNS.items()})
SIGNED_FORMS: Final = ("folded", "exact")


@cache
def _foldings() -> tuple[re.Pattern[str], dict[int, str], re.Pattern[str]]:
    """What `folded` looks for, what it writes for a character, and what it removes (folded.toml)."""
    import tomllib  # imported when used: ASCII needs none of it

    tables = tomllib.loads(Path(__file__).with_name("folded.toml").read_text(encoding="utf-8"))
    variants, invisible, joined = ("".join(tables[name].values()) for name in ("variants", "invisible", "joined"))
    plain: dict[str, str] = {}
    for character in re.findall(f"[{variants}]", "".join(map(chr, range(0x80, 0x1F000)))):
        parts = re.sub("<.*> ", "", unicodedata.decomposition(character)).split()
        if parts == ["0020"] or (parts and "0020" not in parts):  # an accent alone would come behind a space
            plain[character] = "".join(chr(int(part, 16)) for part in parts)
    table = str.maketrans(plain | tables["others"])
    twice = {code: text.translate(table) for code, text in table.items()}  # U+FE19 is U+2026, and that three dots
    special = re.compile(f"[{variants}{invisible}{''.join(tables['others'])}\u200c\u200d]")
    return special, twice, re.compile(f"[{invisible}]|(?<![{joined}])[\u200c\u200d]")


@lru_cache(4096)  # the lines of a chunk are encoded, and then counted if they changed
def folded(text: str) -> str:
    """NFC, with plain characters for those that only look different, and without invisible ones."""
    if text.isascii():
        return text
    special, plain, removed = _foldings()
    return unicodedata.normalize("NFC", removed.sub("", text.translate(plain)) if special.search(text) else text)


def exact(text: str) -> str:
    """The text as it is, with SIGNS where a vocabulary needs them. Spaces at its ends do not count."""
    text = text.strip(" ").replace("\u2581", "\x02")
    return re.sub(" (?= )", "\x03", text) if "  " in text else text


def as_written(text: str) -> str:
    """The text of `folded` or `exact`, with the characters that SIGNS stand for."""
    return text.translate(_WRITTEN) if any(sign in text for sign in SIGNS) else text


UNICODE_FORMS: Final[Mapping[str, Callable[[str], str]]] = {
    "folded": folded,
    "exact": exact,
    "nfc": partial(unicodedata.normalize, "NFC"),  # `e` and a combining accent become one character
    "nfkc": partial(unicodedata.normalize, "NFKC"),  # and ligatures, full-width and circled characters plain ones
    "none": str,
}
if TYPE_CHECKING:
    UnicodeForm = str
else:
    UnicodeForm = Literal[tuple(UNICODE_FORMS)]  # the choices of `--normalization`
