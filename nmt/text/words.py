"""Words of a prepared line, as they stand between spaces, and the tokens of each word."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from nmt.text.pipeline import Side
from nmt.text.subword import SPACE_MARK


def word_of_tokens(side: Side, tokens: Sequence[int]) -> list[int]:
    """The number of the word that each token belongs to: a word begins where a token brings a space."""
    begins = [number == 0 or side.surface(token).startswith(" ") for number, token in enumerate(tokens)]
    numbers: list[int] = (np.cumsum(begins) - 1).tolist() if begins else []
    return numbers


def words_of(side: Side, text: str) -> list[str]:
    """The words of a line of raw text that `word_of_tokens` numbers."""
    return words_of_prepared(side, side.prepare([text])[0])


def words_of_prepared(side: Side, prepared: str) -> list[str]:
    """The words of a line that is ready for subwords."""
    if side.settings.subword != "none":  # sentencepiece takes this character for a space
        prepared = prepared.replace(SPACE_MARK, " ")
    return [word for word in prepared.split(" ") if word]


def tokens_per_word(side: Side, prepared: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(N,) the number of words of each prepared line, and the number of tokens of each word of all lines.

    No token crosses a space (nmt.text.subword), so that a word has the same tokens wherever it stands.
    """
    words = [words_of_prepared(side, line) for line in prepared]
    tokens = side.encode_prepared(list(chain.from_iterable(words))).lengths
    return np.array(list(map(len, words)), dtype=np.int64), tokens.astype(np.int64)
