"""Patterns for words in any script. Letters include their marks; in scripts without spaces, each letter is a word.

Python's `re` has no classes for scripts, and does not count marks as letters.
"""

import re
import unicodedata
from functools import cache
from typing import Final

# Thai, Lao, Myanmar, Khmer, kana, and Chinese characters.
LETTERS_ALONE: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
ZERO_WIDTH_JOINERS: Final = "\u200c\u200d"
LAST_CHECKED: Final = 0x1FFFF  # the only marks after this code point are variation selectors


@cache
def word_pattern() -> re.Pattern[str]:
    """A pattern for a word, including underscores, or a single sign."""
    return re.compile(rf"{_letter_alone()}|(?:[^\W{LETTERS_ALONE}]{_marks()})+|[^\w\s]")


@cache
def unit_pattern() -> re.Pattern[str]:
    """A pattern for a word, including inner hyphens and apostrophes, or a single sign."""
    letters = rf"(?:[^\W_{LETTERS_ALONE}]{_marks()})+"
    return re.compile(rf"{_letter_alone()}|{letters}(?:[-'’]{letters})*|[^\w\s]|_")


def _letter_alone() -> str:
    return rf"[{LETTERS_ALONE}]{_marks()}"


@cache
def _marks() -> str:
    """A pattern for any number of marks, such as accents and vowel signs."""
    marks = (code for code in range(0x300, LAST_CHECKED + 1) if unicodedata.category(chr(code)).startswith("M"))
    return f"[{ZERO_WIDTH_JOINERS}{''.join(map(chr, marks))}]*"
