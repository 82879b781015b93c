"""Removes repeated pairs from any number of pairs, in bounded memory.

All pairs are first written to a file, and a 128-bit digest of each to another file. The digests are searched for repeats in
parts small enough to sort. Then the pairs are read back, without those that repeat an earlier pair.
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

SORTED_ROWS: Final = 1 << 21  # rows sorted at once; each takes 24 bytes, or 48 during the sort
SCANNED_ROWS: Final = 1 << 20

Keys = NDArray[np.uint64]


def without_duplicates(pairs: Iterator[Encoded], scratch: Path) -> Iterator[Encoded]:
    """Drop pairs whose digest has already occurred, and keep the order. `dropped` counts them as "duplicate".

    scratch: folder for two temporary files, which take about twice the space of the pairs
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
    """(N,) whether an earlier row has the same key.

    keys: (N, K) 64-bit numbers, in memory or mapped; a row of zeros stands for no key
    sorted_rows: approximate number of rows sorted together, which bounds memory (apart from 1 byte per row)
    """
    repeated = np.zeros(len(keys), dtype=bool)
    parts = -(-len(keys) // sorted_rows)
    for part in range(parts):
        signals.check()
        at = np.concatenate([_of_part(keys, start, part, parts) for start in range(0, len(keys), SCANNED_ROWS)])
        rows = keys[at]
        order = np.lexsort(rows.T)  # lexsort is stable: among equal rows, the earliest stays first
        same = (rows[order[1:]] == rows[order[:-1]]).all(axis=1)
        repeated[at[order[1:][same]]] = True
    return repeated


def _of_part(keys: Keys, start: int, part: int, parts: int) -> NDArray[np.int64]:
    """Indices of the rows that belong to a part, among SCANNED_ROWS rows starting at `start`."""
    rows = keys[start : start + SCANNED_ROWS]
    return start + np.flatnonzero((rows[:, 0] % np.uint64(parts) == part) & rows.any(axis=1))
