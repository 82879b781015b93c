"""Pairs that were there before, left out of any number of pairs in bounded memory.

All pairs go to a file first, and 128 bits of each to another; these are then looked through in parts small enough to
sort, and the pairs come back without those that an earlier one equals.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from nmt.data.encode import Encoded

SORTED_AT_ONCE: Final = 1 << 21  # pairs: 24 bytes each, and as much again while they are sorted
SCANNED_AT_ONCE: Final = 1 << 20

Keys = NDArray[np.uint64]


def without_duplicates(pairs: Iterator[Encoded], scratch: Path, check: Callable[[], None]) -> Iterator[Encoded]:
    """The pairs, in their order, without those whose digest an earlier one has; counted as dropped: "duplicate".

    scratch: a folder for two files, of about twice the size of the pairs; they are gone when this ends
    check: called now and then; may raise to stop
    """
    spool, digests = scratch / "pairs.spool", scratch / "digests.spool"
    try:
        with spool.open("w+b") as file, digests.open("w+b") as keys:
            written = [_Written.of(encoded, file, keys) for encoded in pairs]
            keys.flush()
            repeated = find_repeated(_mapped(digests), check)
            file.seek(0)
            first = 0
            for one in written:
                check()
                encoded = one.read(file)
                kept = ~repeated[first : first + len(encoded.lengths)]
                first += len(encoded.lengths)
                encoded.dropped["duplicate"] += int((~kept).sum())
                encoded.keep(kept)
                yield encoded
    finally:
        spool.unlink(missing_ok=True)
        digests.unlink(missing_ok=True)


def find_repeated(keys: Keys, check: Callable[[], None], at_once: int = SORTED_AT_ONCE) -> NDArray[np.bool_]:
    """(N,) whether an earlier row is the same. keys: (N, words) of 64 bits, in memory or mapped; a row of zeros is no key.

    at_once: about how many rows are sorted at once, which bounds the memory: 1 byte a row beside it
    check: called now and then; may raise to stop
    """
    repeated = np.zeros(len(keys), dtype=bool)
    parts = -(-len(keys) // at_once)
    for part in range(parts):
        check()
        at = np.concatenate([_of_part(keys, start, part, parts) for start in range(0, len(keys), SCANNED_AT_ONCE)])
        rows = keys[at]
        order = np.lexsort(rows.T)  # which is stable: of equal rows the earlier one stays the first
        same = (rows[order[1:]] == rows[order[:-1]]).all(axis=1)
        repeated[at[order[1:][same]]] = True
    return repeated


def _of_part(keys: Keys, start: int, part: int, parts: int) -> NDArray[np.int64]:
    """Of the rows from start on the indices of those that belong to a part."""
    some = keys[start : start + SCANNED_AT_ONCE]
    return start + np.flatnonzero((some[:, 0] % np.uint64(parts) == part) & some.any(axis=1))


def _mapped(digests: Path) -> Keys:
    """(N, 2) of a file of digests."""
    if not digests.stat().st_size:
        return np.zeros((0, 2), dtype="<u8")
    return np.memmap(digests, dtype="<u8", mode="r").reshape(-1, 2)


class _Written:
    """What is remembered of a chunk whose arrays are in a file."""

    def __init__(self, encoded: Encoded) -> None:
        self._counts = encoded.read, encoded.dropped, encoded.num_replaced
        self._shapes = [array.shape for array in self._arrays(encoded)]

    @staticmethod
    def _arrays(encoded: Encoded) -> list[NDArray[np.uint32]]:
        return [encoded.lengths, encoded.words, encoded.unknown, encoded.source, encoded.target]

    @classmethod
    def of(cls, encoded: Encoded, file: BinaryIO, keys: BinaryIO) -> "_Written":
        for array in cls._arrays(encoded):
            file.write(array.tobytes())
        keys.write(encoded.digests.tobytes())
        return cls(encoded)

    def read(self, file: BinaryIO) -> Encoded:
        """The chunk, from where the file stands."""
        arrays = (
            np.frombuffer(file.read(4 * math.prod(shape)), dtype=np.uint32).reshape(shape) for shape in self._shapes
        )
        lengths, words, unknown, source, target = arrays
        read, dropped, num_replaced = self._counts
        nothing = np.zeros((0, 2), dtype=np.uint64)
        return Encoded(lengths, words, unknown, source, target, nothing, read, dropped, num_replaced)
