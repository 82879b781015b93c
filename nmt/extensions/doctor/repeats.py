"""64-bit keys of lines, and the evaluation sentences that training data repeats: 8 bytes a line, however long it is.

Among 36 million lines two different ones have the same key with a probability of 4 in 100,000 (the birthday bound,
N * N / 2 ** 65).
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt.data.duplicates import Keys

NO_KEY: Final = 0  # of a blank line, which repeats no other


def keys_of(texts: Iterable[str]) -> Keys:
    """(N,) the keys of texts; NO_KEY for empty ones."""
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() if text else bytes(8) for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<u8")


def first_row_of_key(keys: Keys, row: int) -> int:
    """The first row with the key of a row."""
    return int(np.argmax(keys[: row + 1] == keys[row]))


class TrainingOverlap:
    """The keys of evaluation sets that occur in the training data, with the first training row of each."""

    def __init__(self, evaluation_keys: Iterable[Keys]) -> None:
        """evaluation_keys: (N,) of each evaluation set"""
        self._wanted = {key for keys in evaluation_keys for key in keys.tolist()} - {NO_KEY}
        self._first_row: dict[int, int] = {}

    def add_training(self, keys: Keys, start: int) -> None:
        """Compare the keys of training rows. start: the first row's number"""
        for row, key in enumerate(keys.tolist(), start):
            if key in self._wanted:
                self._first_row.setdefault(key, row)

    def training_rows(self, keys: NDArray[Any]) -> dict[int, int]:
        """Training row by evaluation row, for the evaluation rows that occur in training. keys: (N,) of the set"""
        return {i: self._first_row[key] for i, key in enumerate(keys.tolist()) if key in self._first_row}
