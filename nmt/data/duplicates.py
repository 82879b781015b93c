"""Removal of repeated pairs from any number of pairs, in bounded memory.

All pairs go to a file first, and 128 bits of each to another. These digests are searched for repeats in parts that are small
enough to sort; the pairs then come back without those that equal an earlier one.
"""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nmt import signals
from nmt.data.encode import Encoded
from nmt.data.row_files import MappedFile

SORTED_ROWS: Final = 1 << 21  # 24 bytes each, and as much again while they are sorted
SCANNED_ROWS: Final = 1 << 20

Keys = NDArray[np.uint64]


def without_duplicates(pairs: Iterator[Encoded], scratch: Path) -> Iterator[Encoded]:
    """The pairs, in their order, without those whose digest an earlier one has; counted as dropped: "duplicate".

    scratch: a folder for two files, of about twice the size of the pairs; they are deleted in the end
    """
    spool, digests = scratch / "pairs.spool", scratch / "digests.spool"
    num_chunks = first = 0
    try:
        with spool.open("w+b") as file, digests.open("w+b") as keys:
            for encoded in pairs:
                keys.write(encoded.digests.tobytes())
                encoded.digests = encoded.digests[:0]
                pickle.dump(encoded, file, pickle.HIGHEST_PROTOCOL)
                num_chunks += 1
            keys.flush()
            repeated = find_repeated(MappedFile(digests, np.dtype("<u8"), 2).numbers)
            file.seek(0)
            for _ in range(num_chunks):
                signals.check()
                encoded = pickle.load(file)
                kept = ~repeated[first : first + len(encoded.lengths)]
                first += len(encoded.lengths)
                encoded.dropped["duplicate"] += int((~kept).sum())
                encoded.keep(kept)
                yield encoded
    finally:
        spool.unlink(missing_ok=True)
        digests.unlink(missing_ok=True)


def find_repeated(keys: Keys, sorted_rows: int = SORTED_ROWS) -> NDArray[np.bool_]:
    """(N,) whether an earlier row is the same.

    keys: (N, K) numbers of 64 bits, in memory or mapped; a row of zeros is no key
    sorted_rows: about the number of rows that are sorted together, which bounds the memory (1 byte a row beside it)
    """
    repeated = np.zeros(len(keys), dtype=bool)
    parts = -(-len(keys) // sorted_rows)
    for part in range(parts):
        signals.check()
        at = np.concatenate([_of_part(keys, start, part, parts) for start in range(0, len(keys), SCANNED_ROWS)])
        rows = keys[at]
        order = np.lexsort(rows.T)  # stable: of equal rows the earlier one stays the first
        same = (rows[order[1:]] == rows[order[:-1]]).all(axis=1)
        repeated[at[order[1:][same]]] = True
    return repeated


def _of_part(keys: Keys, start: int, part: int, parts: int) -> NDArray[np.int64]:
    """The indices of the rows of a part, among SCANNED_ROWS rows from `start` on."""
    rows = keys[start : start + SCANNED_ROWS]
    return start + np.flatnonzero((rows[:, 0] % np.uint64(parts) == part) & rows.any(axis=1))
