"""Memory-mapped files of a set of pairs, with rows of ids or values. The manifest contains the sha256 of each file.

Files of a set STEM with N pairs, all little-endian:

    STEM.lengths.bin    (N, 2) tokens per pair: source, target; 32-bit
    STEM.source.bin, STEM.target.bin    ids of all pairs without EOS; 16-bit if they fit, otherwise 32-bit
    STEM.COLUMN.bin     values of a column, pair by pair; the format depends on its kind (nmt.columns)
    STEM.COLUMN.counts.bin    (N,) values per pair, 32-bit; only for kinds whose counts do not follow from the lengths
"""

import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from nmt.artefact import Artefact
from nmt.columns.base import ColumnKind, column_kind
from nmt.data.batching import Indices
from nmt.errors import ArtefactError, naming, quoted
from nmt.rows import Rows
from nmt.text.vocabulary import expand_ranges

SIDES: Final[tuple[Literal["source", "target"], ...]] = ("source", "target")
LENGTH: Final = np.dtype("<u4")
STRIDE_ROWS: Final = 64  # the file position of every 64th row is kept in memory
COUNTED_ROWS: Final = 1 << 20  # rows counted at once; a multiple of STRIDE_ROWS

IdArray = NDArray[np.unsignedinteger[Any]]
Counts = Callable[[Indices], NDArray[Any]]  # row indices -> values per row; raises ArtefactError for a truncated file


def id_type(size: int) -> np.dtype[Any]:
    """The number type for ids of a vocabulary with `size` entries."""
    return np.dtype("<u2" if size <= 1 << 16 else "<u4")


class MappedFile:
    """A memory-mapped file of numbers."""

    def __init__(
        self, path: Path, kind: np.dtype[Any], width: int = 1, size: int | None = None, wanted_by: str = ""
    ) -> None:
        """Raises ArtefactError unless the file has the given size. wanted_by: error text, such as "its lengths require" """
        self._path = path
        with naming(path), path.open("rb") as file:
            self._size = os.fstat(file.fileno()).st_size
            if size is not None and self._size != size:
                sizes = f"{self._size:,} bytes, but {wanted_by} {size:,}"
                raise ArtefactError(f"{quoted(path)}: {sizes} (prepare the data again)")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self._size else None
        numbers: NDArray[Any] = np.frombuffer(self._map or b"", kind)
        self._numbers = numbers if width == 1 else numbers.reshape(-1, width)

    @property
    def numbers(self) -> NDArray[Any]:
        """(N, width), or (N,) if width is 1.

        Raises ArtefactError if the file was truncated after it was opened, because reading would kill the process with SIGBUS.
        """
        with naming(self._path):
            size = self._map.size() if self._map is not None else 0
        if size < self._size:
            sizes = f"{size:,} of {self._size:,} bytes"
            raise ArtefactError(f"{quoted(self._path)}: truncated to {sizes} (prepare the data again)")
        return self._numbers


class ColumnWriter:
    """Writes the values of a column, block by block."""

    def __init__(self, folder: Path, name: str, kind: ColumnKind) -> None:
        self._number = kind.number
        self._values = (folder / f"{name}.bin").open("wb")
        self._counts = (folder / f"{name}.counts.bin").open("wb") if kind.stores_counts else None

    def add(self, rows: Rows) -> None:
        self._values.write(rows.values.astype(self._number).tobytes())
        if self._counts is not None:
            self._counts.write(rows.lengths.astype(LENGTH).tobytes())

    def close(self) -> None:
        self._values.close()
        if self._counts is not None:
            self._counts.close()


class SetWriter:
    """Writes the pairs of a set, block by block."""

    def __init__(
        self, folder: Path, stem: str, sizes: tuple[int, int], columns: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """sizes: number of entries of the source and the target vocabulary; columns: kind of each column by name"""
        self.pairs = 0
        self._types = LENGTH, *map(id_type, sizes)
        self._files = [(folder / f"{stem}.{name}.bin").open("wb") for name in ("lengths", *SIDES)]
        self._columns = [ColumnWriter(folder, f"{stem}.{name}", column_kind(kind)) for name, kind in columns.items()]

    def add(
        self, lengths: NDArray[Any], source: NDArray[Any], target: NDArray[Any], columns: Sequence[Rows] = ()
    ) -> None:
        """Write N pairs. lengths: (N, 2) tokens per pair; source, target: ids of all pairs, concatenated"""
        for file, numbers, kind in zip(self._files, (lengths, source, target), self._types, strict=True):
            file.write(numbers.astype(kind).tobytes())
        for column, rows in zip(self._columns, columns, strict=True):
            column.add(rows)
        self.pairs += len(lengths)

    def close(self) -> None:
        for file in self._files:
            file.close()
        for column in self._columns:
            column.close()


class RowFile:
    """Rows of values, one after the other in a memory-mapped file."""

    def __init__(
        self,
        artefact: Artefact,
        name: str,
        kind: np.dtype[Any],
        rows: int,
        counts: Counts,
        bounds: tuple[float, float],
        width: int = 1,
    ) -> None:
        """Raises ArtefactError for a damaged file, and if the counts do not add up to the file's size.

        kind: type of the numbers; width: numbers per value; rows: number of rows
        bounds: smallest and largest number allowed in the file
        """
        self._path, self._rows, self._counts, self._bounds = artefact.path(f"{name}.bin"), rows, counts, bounds
        sums = [np.zeros(1, np.int64)]
        for start in range(0, rows, COUNTED_ROWS):
            of_rows = counts(np.arange(start, min(start + COUNTED_ROWS, rows)))
            sums.append(np.add.reduceat(of_rows, np.arange(0, len(of_rows), STRIDE_ROWS), dtype=np.int64))
        self._starts = np.cumsum(np.concatenate(sums))  # the position of every STRIDE_ROWS-th row
        size = int(self._starts[-1]) * kind.itemsize * width
        self.file = MappedFile(self._path, kind, width, size, "its lengths require")

    def lengths(self, rows: Indices) -> Indices:
        """(N,) the number of values in each row."""
        return self._counts(rows).astype(np.int64)

    def take(self, rows: Indices) -> NDArray[Any]:
        """The values of rows (N,), concatenated. Raises ArtefactError for a number outside the bounds."""
        stride, step = np.divmod(rows, STRIDE_ROWS)  # N, N
        steps = np.arange(STRIDE_ROWS)
        near = np.minimum(stride[:, None] * STRIDE_ROWS + steps, self._rows - 1)  # N STRIDE_ROWS
        before = np.where(steps < step[:, None], self._counts(near), 0).sum(1, dtype=np.int64)  # N
        values: NDArray[Any] = self.file.numbers[expand_ranges(self._starts[stride] + before, self.lengths(rows))]
        low, high = self._bounds
        if values.size and not low <= values.min() <= values.max() <= high:
            raise ArtefactError(
                f"{quoted(self._path)}: a number is not between {low} and {high} (prepare the data again)"
            )
        return values


class StoredColumn:
    """A column of a set, loaded on demand. kind: name of its kind"""

    def __init__(self, artefact: Artefact, name: str, kind: str, pairs: int, pair_lengths: Counts) -> None:
        """name: start of the file names; pair_lengths: maps pair indices (...) to (..., 2) tokens per pair

        Raises ArtefactError if files are damaged or do not fit the lengths.
        """
        of = column_kind(kind)
        self.kind, self._kind, self._name, self._pair_lengths = kind, of, name, pair_lengths
        self._stored = open_lengths(artefact, f"{name}.counts.bin", pairs) if of.stores_counts else None
        self._file = RowFile(artefact, name, of.number, pairs, self._counts, of.bounds, of.width)

    def _counts(self, pairs: Indices) -> NDArray[Any]:
        """(...) the number of values of pairs (...)."""
        if self._stored is not None:
            return np.asarray(self._stored.numbers[pairs])
        return self._kind.counts(self._pair_lengths(pairs))

    def is_zero(self) -> bool:
        """Whether all numbers of the column are 0."""
        return not self._file.file.numbers.any()

    def take(self, indices: Indices) -> Rows:
        """The values of pairs (N,). Raises ArtefactError for values that cannot belong to these pairs."""
        rows = Rows(self._file.take(indices), self._file.lengths(indices))
        if not self._kind.fits(rows, self._pair_lengths(indices)):
            raise ArtefactError(f"{quoted(self._name)}: a value is not valid for its pair (prepare the data again)")
        return rows


def open_lengths(artefact: Artefact, name: str, rows: int, width: int = 1) -> MappedFile:
    """Open a file of lengths: (rows, width), or (rows,) if width is 1. Raises ArtefactError if the file's size is wrong."""
    path = artefact.path(name)
    return MappedFile(path, LENGTH, width, LENGTH.itemsize * rows * width, f"{rows:,} pairs require")
