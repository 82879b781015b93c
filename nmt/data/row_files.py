"""Files of a set of pairs: rows of ids or of values, memory-mapped, each block checked when it is first used.

Files of a set STEM of N pairs, all little-endian:

    STEM.lengths.bin    (N, 2) tokens of each pair: source, target; 32-bit
    STEM.source.bin, STEM.target.bin    ids of all pairs without EOS, 16-bit if they fit, else 32-bit
    STEM.COLUMN.bin     values of a column: (N,) for kind "pair", (target tokens and EOS of all pairs,) for "target", both
        32-bit floats; (links, 2) for "links", 32-bit source and target positions in the model's order
    STEM.COLUMN.counts.bin    (N,) links of each pair, 32-bit; of "links" only
    STEM.*.sums         sha256 of each block of the file of ids or values
"""

import hashlib
import mmap
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from nmt.artefact import Artefact
from nmt.data.batching import Indices
from nmt.errors import ArtefactError, naming, quoted
from nmt.rows import Rows
from nmt.symbols import ColumnKind
from nmt.text.vocabulary import expand_ranges

SIDES: Final[tuple[Literal["source", "target"], ...]] = ("source", "target")
LENGTH: Final = np.dtype("<u4")
BLOCK_BYTES: Final = 1 << 16  # checked at once
SHA256_BYTES: Final = 32
STRIDE_ROWS: Final = 64  # rows between two whose place in the file is kept in memory

COLUMN_TYPES: Final[dict[ColumnKind, np.dtype[Any]]] = {
    "pair": np.dtype("<f4"),
    "target": np.dtype("<f4"),
    "links": np.dtype("<u4"),
}
FINITE: Final = float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)
BOUNDS: Final[dict[ColumnKind, tuple[float, float]]] = {"pair": FINITE, "target": FINITE, "links": (0, (1 << 32) - 1)}

IdArray = NDArray[np.unsignedinteger[Any]]
Lengths = Callable[[], NDArray[Any]]  # of rows, from a file that is checked at each call


def id_type(size: int) -> np.dtype[Any]:
    """The type of the ids of a vocabulary of `size` entries."""
    return np.dtype("<u2" if size <= 1 << 16 else "<u4")


class MappedFile:
    """A memory-mapped file of numbers."""

    def __init__(
        self, path: Path, kind: np.dtype[Any], width: int = 1, size: int | None = None, wanted_by: str = ""
    ) -> None:
        """Raises ArtefactError unless the file has `size` bytes, if that is given. wanted_by: "its lengths say" """
        self._path = path
        with naming(path), path.open("rb") as file:
            self._size = os.fstat(file.fileno()).st_size
            if size is not None and self._size != size:
                raise ArtefactError(f"{quoted(path)}: {self._size:,} bytes; {wanted_by} {size:,} (prepare it again)")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self._size else None
        numbers: NDArray[Any] = np.frombuffer(self._map or b"", kind)
        self._numbers = numbers if width == 1 else numbers.reshape(-1, width)

    @property
    def numbers(self) -> NDArray[Any]:
        """(N, width), or (N,) where width is 1.

        Raises ArtefactError if the file was cut off since it was opened: reading would end the process by SIGBUS.
        """
        with naming(self._path):
            size = self._map.size() if self._map is not None else 0
        if size < self._size:
            raise ArtefactError(f"{quoted(self._path)}: cut to {size:,} of {self._size:,} bytes (prepare it again)")
        return self._numbers


class SetWriter:
    """Writes the pairs of one set as they come."""

    def __init__(
        self, folder: Path, stem: str, sizes: tuple[int, int], columns: Mapping[str, ColumnKind] = MappingProxyType({})
    ) -> None:
        """sizes: entries of the source and the target vocabulary; columns: kind of each column by name"""
        self.pairs, self._kinds = 0, columns
        names = [f"{stem}.{name}.bin" for name in (*SIDES, *self._kinds)]
        links = [f"{stem}.{name}.counts.bin" for name, kind in self._kinds.items() if kind == "links"]
        self._checked = [(folder / name).open("wb") for name in names]
        self._counts = [(folder / name).open("wb") for name in (f"{stem}.lengths.bin", *links)]
        value_types = (COLUMN_TYPES[kind] for kind in self._kinds.values())
        self._types = *map(id_type, sizes), *value_types

    def add(
        self, lengths: NDArray[Any], source: NDArray[Any], target: NDArray[Any], columns: Sequence[Rows] = ()
    ) -> None:
        """lengths: (N, 2) tokens of each pair; source, target: the ids of all of them, one after the other."""
        values = source, target, *(rows.values for rows in columns)
        links = (rows.lengths for rows, kind in zip(columns, self._kinds.values(), strict=True) if kind == "links")
        for file, array, kind in zip(self._checked, values, self._types, strict=True):
            file.write(array.astype(kind).tobytes())
        for file, counts in zip(self._counts, (lengths, *links), strict=True):
            file.write(counts.astype(LENGTH).tobytes())
        self.pairs += len(lengths)

    def close(self) -> None:
        for file in (*self._checked, *self._counts):
            file.close()

    def finish(self) -> None:
        """Close the files, and write the sums of their blocks."""
        self.close()
        for file in self._checked:
            _write_sums(Path(file.name))


def write_links(folder: Path, name: str, rows: Iterable[Rows]) -> None:
    """Write a column of links beside a set that is written. name: beginning of the files' names"""
    values, counts = folder / f"{name}.bin", folder / f"{name}.counts.bin"
    with values.open("wb") as of_values, counts.open("wb") as of_counts:
        for links in rows:
            of_values.write(links.values.astype(COLUMN_TYPES["links"]).tobytes())
            of_counts.write(links.lengths.astype(LENGTH).tobytes())
    _write_sums(values)


def _write_sums(path: Path) -> None:
    """Write the sums of the blocks of a file beside it."""
    with naming(path), path.open("rb") as content, path.with_suffix(".sums").open("wb") as sums:
        while block := content.read(BLOCK_BYTES):
            sums.write(hashlib.sha256(block).digest())


class RowFile:
    """Rows of values, one after the other in a memory-mapped file whose blocks are checked when they are first used."""

    def __init__(
        self,
        artefact: Artefact,
        name: str,
        kind: np.dtype[Any],
        lengths: Lengths,
        bounds: tuple[float, float],
        more: int = 0,
        width: int = 1,
    ) -> None:
        """Raises ArtefactError unless the lengths add up to the file.

        kind: type of a number; width: numbers of a value; bounds: the least and the greatest number that may be in the file
        lengths: a function to (N,) values of each row, without `more`, which every row has besides
        """
        self._path = artefact.unchecked_path(f"{name}.bin")
        self._lengths, self._more, self._bounds = lengths, more, bounds
        of_rows = lengths()
        firsts = np.arange(0, len(of_rows), STRIDE_ROWS)
        sums = np.add.reduceat(of_rows, firsts, dtype=np.int64) if len(firsts) else firsts
        sums += more * np.minimum(STRIDE_ROWS, len(of_rows) - firsts)
        self._starts = np.concatenate([[0], np.cumsum(sums)])  # of every STRIDE_ROWS-th row
        self._value_bytes = kind.itemsize * width
        expected = int(self._starts[-1]) * self._value_bytes
        self._file = MappedFile(self._path, kind, width, expected, "its lengths say")
        self._sums = artefact.read(f"{name}.sums")
        self._checked = np.zeros(-(-expected // BLOCK_BYTES), dtype=bool)
        if len(self._sums) != SHA256_BYTES * len(self._checked):
            raise ArtefactError(f"{quoted(self._path.with_suffix('.sums'))}: not the sums of {self._path.name}")

    def lengths(self, rows: Indices) -> Indices:
        """(N,) the number of values of each of some rows."""
        return self._lengths()[rows].astype(np.int64) + self._more

    def take(self, rows: Indices) -> NDArray[Any]:
        """The values of rows (N,), one after the other; ArtefactError when they are not those that were written."""
        all_values, all_lengths = self._file.numbers, self._lengths()
        lengths, stride, step = self.lengths(rows), rows // STRIDE_ROWS, rows % STRIDE_ROWS
        steps = np.arange(STRIDE_ROWS)
        near = all_lengths[np.minimum(stride[:, None] * STRIDE_ROWS + steps, len(all_lengths) - 1)]  # N STRIDE_ROWS
        starts = self._starts[stride] + np.where(steps < step[:, None], near, 0).sum(1, dtype=np.int64)
        starts += self._more * step
        self._check(starts[lengths > 0], (starts + lengths)[lengths > 0])
        values: NDArray[Any] = all_values[expand_ranges(starts, lengths)]
        return values

    def _check(self, starts: Indices, ends: Indices) -> None:
        """Check the blocks that hold the values from starts to ends, unless they have been."""
        first, last = starts * self._value_bytes // BLOCK_BYTES, (ends * self._value_bytes - 1) // BLOCK_BYTES
        blocks, values = expand_ranges(first, last - first + 1), self._file.numbers
        for block in np.unique(blocks[~self._checked[blocks]]).tolist():
            start, end = (at * BLOCK_BYTES // self._value_bytes for at in (block, block + 1))
            digest = hashlib.sha256(values[start:end].tobytes()).digest()
            if digest != self._sums[block * SHA256_BYTES : (block + 1) * SHA256_BYTES]:
                raise ArtefactError(f"{quoted(self._path)}: damaged: block {block} is not what was written")
            low, high = self._bounds
            if not low <= values[start:end].min() <= values[start:end].max() <= high:
                raise ArtefactError(f"{quoted(self._path)}: holds a number that is not {low} to {high}")
            self._checked[block] = True


class StoredColumn:
    """A column of a set, in memory only where it is read."""

    def __init__(self, artefact: Artefact, name: str, kind: ColumnKind, pair_lengths: Lengths) -> None:
        """name: beginning of the files' names; pair_lengths: a function to (N, 2) tokens of each pair

        Raises ArtefactError when the files do not fit the lengths.
        """
        self.kind, self._name, self._pair_lengths = kind, name, pair_lengths
        self._counts, more, width = None, 1, 1
        if kind == "links":
            self._counts, more, width = open_lengths(artefact, f"{name}.counts.bin", len(pair_lengths())), 0, 2
        self._file = RowFile(artefact, name, COLUMN_TYPES[kind], self._lengths, BOUNDS[kind], more, width)

    def _lengths(self) -> NDArray[Any]:
        """(N,) values of each pair, without the one more of a column that is no alignment."""
        if self._counts is not None:
            return self._counts.numbers
        lengths = self._pair_lengths()[:, 1]
        return np.broadcast_to(LENGTH.type(0), len(lengths)) if self.kind == "pair" else lengths

    def take(self, indices: Indices) -> Rows:
        """The values of pairs (N,); ArtefactError when they are not those that were written."""
        rows = Rows(self._file.take(indices), self._file.lengths(indices))
        if (
            self.kind == "links"
            and (rows.values >= np.repeat(self._pair_lengths()[indices], rows.lengths, axis=0)).any()
        ):
            raise ArtefactError(f"{quoted(self._name)}: a link leaves its sentence (prepare the data again)")
        return rows


def open_lengths(artefact: Artefact, name: str, rows: int, width: int = 1) -> MappedFile:
    """The file with the lengths of (rows, width), or (rows,) where width is 1; ArtefactError if there are not as many."""
    path = artefact.path(name)
    return MappedFile(path, LENGTH, width, LENGTH.itemsize * rows * width, f"{rows:,} pairs have")
