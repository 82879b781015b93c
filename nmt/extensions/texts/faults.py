"""Detects failed translations without a reference: the translation repeats itself, or a part of the text is missing."""

import unicodedata
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt.extensions.texts.sentences import sentences
from nmt.extensions.texts.words import word_pattern

MAX_REPEATED: Final = 8  # maximum number of words in a repeated group
REPEATS: Final = {1: 4, 2: 3}  # minimum number of consecutive repetitions, of a word and of a longer group
MIN_LENGTH: Final = 24  # minimum length of a text, in letters, for its translation to be judged by length
SHORT: Final = 0.35  # ratio of translation length to source length below which a part counts as missing
LONG: Final = 3.0  # ratio above which the translation counts as repeating itself
WIDE_CHARACTER: Final = 3  # number of letters that a Chinese, Japanese or Korean character counts as
NO_ATTENTION: Final = 0.15  # total attention below which a source token counts as unread
UNREAD_SHARE: Final = 0.4  # share of consecutive unread tokens at which a part counts as missing
MIN_UNREAD: Final = 6


def faults(
    source: str, translation: str, languages: tuple[str, str], weights: NDArray[Any] | None = None
) -> dict[str, str]:
    """Find signs of a failed translation. Returns messages by kind, `repeated` or `missing`.

    languages: languages of source and translation
    weights: (T, S) attention, if known
    """
    found = {}
    if (repeated := _repetition(source, translation)) is not None:
        found["repeated"] = f"'{' '.join(repeated[0])}' is repeated {repeated[1]} times in a row"
    source_length, length = _length(source), _length(translation)
    texts = zip((source, translation), languages, strict=True)
    num_source, num_target = (len(sentences(text, language)) for text, language in texts)
    if source_length >= MIN_LENGTH and length < SHORT * source_length:
        found["missing"] = f"it is only {length / source_length:.0%} as long as its source"
    elif 2 * num_target <= num_source:
        found["missing"] = f"it has only {num_target} of {num_source} sentences"
    elif weights is not None and (unread := _unread(weights)):
        found["missing"] = f"{unread} consecutive source tokens got no attention"
    elif "repeated" not in found and source_length >= MIN_LENGTH and length > LONG * source_length:
        found["repeated"] = f"it is {length / source_length:.1f} times as long as its source"
    return found


def _length(text: str) -> int:
    """The length of a text in letters."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + (WIDE_CHARACTER - 1) * wide


def _repetition(source: str, translation: str) -> tuple[Sequence[str], int] | None:
    """The group of words that is repeated too often in a row, and how often; None if the source repeats words just as often."""
    source_words, words = word_pattern().findall(source.casefold()), word_pattern().findall(translation.casefold())
    for size in range(1, MAX_REPEATED + 1):
        group, count = _longest_run(words, size)
        if count >= REPEATS[min(size, 2)] and count > _longest_run(source_words, size)[1]:
            return group, count
    return None


def _longest_run(words: Sequence[str], size: int) -> tuple[Sequence[str], int]:
    """The group of `size` words, with at least one letter, that is repeated most often in a row, and how often."""
    same = [a == b for a, b in zip(words, words[size:], strict=False)]
    best: tuple[Sequence[str], int] = ([], 1)
    place = 0
    for is_same, run in groupby(same):
        length = len(list(run))
        group = words[place : place + size]
        if is_same and 1 + length // size > best[1] and any(word[0].isalnum() for word in group):
            best = group, 1 + length // size
        place += length
    return best


def _unread(weights: NDArray[Any]) -> int:
    """The length of the longest run of source tokens without attention; 0 if it is only a small share of all tokens."""
    attention = np.asarray(weights).sum(0)
    longest = max((len(list(run)) for is_unread, run in groupby(attention < NO_ATTENTION) if is_unread), default=0)
    return longest if longest >= max(MIN_UNREAD, UNREAD_SHARE * len(attention)) else 0
