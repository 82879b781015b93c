"""Lines that were there before, found by 64-bit keys: 8 bytes a line in memory, however long it is, and 1 for the answer.

Of 36 million lines two that differ have one key with a chance of 4 in 100,000 (the birthday bound, N * N / 2 ** 65).
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

NO_KEY: Final = 0  # of a line that is not to be found again: a blank one
SORTED_AT_ONCE: Final = 1 << 21  # some 50 bytes each while they are sorted

Keys = NDArray[np.uint64]


def keys_of(texts: Iterable[str]) -> Keys:
    """(N,) the keys of texts; NO_KEY for empty ones."""
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() if text else bytes(8) for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<u8")


def repeated(keys: Keys, check: Callable[[], None]) -> NDArray[np.bool_]:
    """(N,) whether an earlier line has the same key. check: called now and then; may raise to stop."""
    found = np.zeros(len(keys), dtype=bool)
    parts = -(-len(keys) // SORTED_AT_ONCE)
    for part in range(parts):
        check()
        at = np.concatenate([_of_part(keys, start, part, parts) for start in range(0, len(keys), SORTED_AT_ONCE)])
        order = np.argsort(keys[at], kind="stable")  # of equal keys the earlier line stays the first
        ordered = at[order]
        found[ordered[1:][keys[ordered[1:]] == keys[ordered[:-1]]]] = True
    return found


def _of_part(keys: Keys, start: int, part: int, parts: int) -> NDArray[np.int64]:
    """Of the lines from start on the indices of those that belong to a part."""
    some = keys[start : start + SORTED_AT_ONCE]
    return start + np.flatnonzero((some % np.uint64(parts) == part) & (some != NO_KEY))


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
