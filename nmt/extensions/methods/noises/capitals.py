"""Converts words to capitals as people write them in each language (Unicode's SpecialCasing.txt and CLDR)."""

import re
import unicodedata
from typing import Final

from nmt.text.languages import base_language
from nmt.text.steps import DOTTED_I

GREEK_MARKS: Final = re.compile("(?<=[\u0370-\u03ff\u0308])[\u0300-\u0307\u0309-\u0344]+")  # except the diaeresis
GREEK_HIATUS: Final = re.compile(
    "(?<=[αεηιουω]\u0301)([ιυ])(?![\u0300-\u036f])"
)  # only the accent shows that the vowels do not form a diphthong
DOT_OF_I: Final = re.compile("(?<=[ijį])\u0307")  # Lithuanian keeps the dot under another accent
GEORGIAN: Final = re.compile("([\u10d0-\u10ff]+)")


def in_capitals(word: str, language: str) -> str:
    """Convert a word to capitals. Georgian stays unchanged, because nobody writes its capitals in sentences."""
    match base_language(language):
        case base if base in DOTTED_I:
            word = word.replace("i", "\u0130")
        case "el":
            word = _without_accents(word)
        case "hy":
            word = word.replace("\u0587", "եվ")
        case "lt":
            word = unicodedata.normalize("NFC", DOT_OF_I.sub("", unicodedata.normalize("NFD", word)))
    parts = GEORGIAN.split(word)  # Georgian parts are at odd indices
    parts[::2] = map(str.upper, parts[::2])
    return "".join(parts)


def _without_accents(word: str) -> str:
    """Remove the accents of a Greek word, because capitals have none. The word ή (or) keeps its accent."""
    if word == "ή":
        return word
    parted = GREEK_HIATUS.sub("\\1\u0308", unicodedata.normalize("NFD", word))
    return unicodedata.normalize("NFC", GREEK_MARKS.sub("", parted).replace("\u0345", "ι"))
