"""Removal of repeated pairs from any number of pairs, in bounded memory.

All pairs go to a file first, and 128 bits of each to another. These digests are searched for repeats in parts that are small
enough to sort; the pairs then come back without those that equal an earlier one.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from nmt.data.encode import Encoded
from nmt.data.row_files import Rows

SORTED_ROWS: Final = 1 << 21  # 24 bytes each, and as much again while they are sorted
SCANNED_ROWS: Final = 1 << 20
SPOOLED: Final = ("lengths", "words", "unknown", "source", "target")  # arrays of `Encoded`, beside the columns

Keys = NDArray[np.uint64]


def without_duplicates(pairs: Iterator[Encoded], scratch: Path, check: Callable[[], None]) -> Iterator[Encoded]:
    """The pairs, in their order, without those whose digest an earlier one has; counted as dropped: "duplicate".

    scratch: a folder for two files, of about twice the size of the pairs; they are deleted in the end
    check: called now and then; may raise to stop
    """
    spool, digests = scratch / "pairs.spool", scratch / "digests.spool"
    try:
        with spool.open("w+b") as file, digests.open("w+b") as keys:
            chunks: list[tuple[Encoded, int]] = []
            for encoded in pairs:
                keys.write(encoded.digests.tobytes())
                chunks.append((_spool(encoded, file), len(encoded.columns)))
            keys.flush()
            repeated = find_repeated(_mapped(digests), check)
            file.seek(0)
            first = 0
            for chunk in chunks:
                check()
                encoded = _unspool(*chunk, file)
                kept = ~repeated[first : first + len(encoded.lengths)]
                first += len(encoded.lengths)
                encoded.dropped["duplicate"] += int((~kept).sum())
                encoded.keep(kept)
                yield encoded
    finally:
        spool.unlink(missing_ok=True)
        digests.unlink(missing_ok=True)


def find_repeated(keys: Keys, check: Callable[[], None], sorted_rows: int = SORTED_ROWS) -> NDArray[np.bool_]:
    """(N,) whether an earlier row is the same.

    keys: (N, K) numbers of 64 bits, in memory or mapped; a row of zeros is no key
    check: called now and then; may raise to stop
    sorted_rows: about the number of rows that are sorted together, which bounds the memory (1 byte a row beside it)
    """
    repeated = np.zeros(len(keys), dtype=bool)
    parts = -(-len(keys) // sorted_rows)
    for part in range(parts):
        check()
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


def _mapped(digests: Path) -> Keys:
    """(N, 2) keys in a file."""
    if not digests.stat().st_size:
        return np.zeros((0, 2), dtype="<u8")
    return np.memmap(digests, dtype="<u8", mode="r").reshape(-1, 2)


def _spool(encoded: Encoded, file: BinaryIO) -> Encoded:
    """Move the arrays of a chunk into a file; returns the rest of it."""
    columns = [array for rows in encoded.columns for array in rows]
    for array in (*(getattr(encoded, name) for name in SPOOLED), *columns):
        np.save(file, array)
    empty: dict[str, Any] = dict.fromkeys((*SPOOLED, "digests"), np.zeros((0, 2), np.uint32))
    return replace(encoded, columns=[], **empty)


def _unspool(rest: Encoded, num_columns: int, file: BinaryIO) -> Encoded:
    """The chunk whose arrays come next in the file."""
    arrays: dict[str, Any] = {name: np.load(file) for name in SPOOLED}
    return replace(rest, **arrays, columns=[Rows(np.load(file), np.load(file)) for _ in range(num_columns)])
