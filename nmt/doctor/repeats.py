"""64-bit keys of lines, and which of them training shares with other sets: 8 bytes a line in memory, however long it is.

Of 36 million lines two that differ have one key with a chance of 4 in 100,000 (the birthday bound, N * N / 2 ** 65).
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt.data.duplicates import Keys

NO_KEY: Final = 0  # of a line that is not to be found again: a blank one


def keys_of(texts: Iterable[str]) -> Keys:
    """(N,) the keys of texts; NO_KEY for empty ones."""
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() if text else bytes(8) for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<u8")


def first_of(keys: Keys, i: int) -> int:
    """The first line with the key of line i."""
    return int(np.argmax(keys[: i + 1] == keys[i]))


class Overlap:
    """Which keys of the evaluation sets the training data has, and where first."""

    def __init__(self, sets: Iterable[Keys]) -> None:
        wanted = np.unique(np.concatenate([np.zeros(0, dtype=np.uint64), *sets]))
        self._wanted = wanted[wanted != NO_KEY]
        self._first: dict[int, int] = {}

    def see(self, keys: Keys, start: int) -> None:
        """Look at the keys of training lines. start: the index of the first of them."""
        if not len(self._wanted):
            return
        near = np.minimum(np.searchsorted(self._wanted, keys), len(self._wanted) - 1)
        for i in np.flatnonzero(self._wanted[near] == keys).tolist():
            self._first.setdefault(int(keys[i]), start + i)

    def found(self, keys: NDArray[Any]) -> dict[int, int]:
        """The lines of an evaluation set that are in the training data: index there by index in the set."""
        return {i: self._first[key] for i, key in enumerate(keys.tolist()) if key in self._first}
