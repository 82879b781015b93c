"""64-bit keys of lines, and the evaluation sentences that occur in training data. A line takes 8 bytes, whatever its length.

The probability that any two of 36 million different lines have the same key is 4 in 100,000 (the birthday bound,
N * N / 2 ** 65).
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt.data.duplicates import Keys

NO_KEY: Final = 0  # key of blank lines, which never count as repetitions


def keys_of(texts: Iterable[str]) -> Keys:
    """Return the keys (N,) of texts; NO_KEY for empty texts."""
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() if text else bytes(8) for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<u8")


def first_row_of_key(keys: Keys, row: int) -> int:
    """The first row that has the same key as `row`."""
    return int(np.argmax(keys[: row + 1] == keys[row]))


class TrainingOverlap:
    """The keys of evaluation sets that occur in the training data, each with its first training row."""

    def __init__(self, evaluation_keys: Iterable[Keys]) -> None:
        """evaluation_keys: for each evaluation set, (N,) keys"""
        self._wanted = {key for keys in evaluation_keys for key in keys.tolist()} - {NO_KEY}
        self._first_row: dict[int, int] = {}

    def add_training(self, keys: Keys, start: int) -> None:
        """Look up the keys of training rows. start: index of the first row"""
        for row, key in enumerate(keys.tolist(), start):
            if key in self._wanted:
                self._first_row.setdefault(key, row)

    def training_rows(self, keys: NDArray[Any]) -> dict[int, int]:
        """Map the evaluation rows that occur in the training data to training rows. keys: (N,) keys of the evaluation set"""
        return {i: self._first_row[key] for i, key in enumerate(keys.tolist()) if key in self._first_row}
