"""Kinds of columns: how extra data for training pairs is read from lines, stored, and put into batches.

A column is a file with one line per training pair, `nmt prepare --column NAME:KIND=FILE`; KIND is the name of a component.
Dimensions: N pairs, B pairs in a batch, T target tokens.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from nmt import registry
from nmt.errors import InputError, quoted
from nmt.rows import Rows
from nmt.text.corpus import checked_line
from nmt.text.pipeline import Pipeline

if TYPE_CHECKING:
    from torch import Tensor

FLOAT: Final = np.dtype("<f4")
FINITE: Final = float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)
NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Sentences:
    """The pairs that the lines of a column belong to.

    numbers: (N,) line numbers, counted from 1
    good: (N,) whether each pair can be used; values of other pairs are not read
    lines: raw source and target lines
    prepared: the same lines, prepared for splitting into subwords
    """

    numbers: NDArray[np.int64]
    good: NDArray[np.bool_]
    lines: tuple[Sequence[bytes], Sequence[bytes]]
    prepared: tuple[Sequence[str], Sequence[str]]
    pipeline: Pipeline

    def only(self, i: int) -> "Sentences":
        """The part of this object for a single pair."""
        sources, targets = (side[i : i + 1] for side in self.lines)
        prepared = self.prepared[0][i : i + 1], self.prepared[1][i : i + 1]
        return Sentences(self.numbers[i : i + 1], self.good[i : i + 1], (sources, targets), prepared, self.pipeline)


class ColumnItems:
    """The items of some lines, split at spaces. counts: (N,) items per line; pairs: (items,) index of the line of each item"""

    def __init__(self, path: Path, lines: Sequence[bytes], sentences: Sentences) -> None:
        numbered = zip(sentences.numbers.tolist(), lines, sentences.good.tolist(), strict=True)
        rows = [checked_line(path, number, raw).split() if good else [] for number, raw, good in numbered]
        self.path, self.sentences, self.items = path, sentences, list(chain.from_iterable(rows))
        self.counts = np.array(list(map(len, rows)))
        self.pairs = np.repeat(np.arange(len(rows)), self.counts)

    def error(self, pair: int, message: str) -> InputError:
        """The error for a pair's line."""
        return InputError(f"{quoted(self.path)}:{self.sentences.numbers[pair]}: {message} (fix the line)")

    def numbers(self, are_weights: bool = False) -> NDArray[Any]:
        """(items,) 32-bit floats. Raises InputError for items that are not finite numbers, and for negative weights."""
        values = [float(item) if NUMBER.fullmatch(item) else np.nan for item in self.items]
        with np.errstate(over="ignore"):
            numbers = np.array(values, FLOAT)
        if not np.isfinite(numbers).all():
            i = int(np.isfinite(numbers).argmin())
            message = f"'{quoted(self.items[i])}' is not a finite 32-bit number"
            raise self.error(int(self.pairs[i]), message)
        if are_weights and (numbers < 0).any():
            i = int((numbers < 0).argmax())
            hint = "for signed numbers, choose another kind from `nmt list column`"
            message = f"'{quoted(self.items[i])}': weights must not be negative; {hint}"
            raise self.error(int(self.pairs[i]), message)
        return numbers


class ColumnKind(ABC):
    """A kind of column, by default of 32-bit floats. A registered kind is built as `cls()` and has no options.

    number: type of the numbers in a file, little-endian; width: numbers per value
    bounds: smallest and largest number allowed in a file
    sides: sides whose tokens the values belong to, source (0) and target (1); used by noise that changes tokens
    filler: number that pads values in a batch
    are_weights: whether the numbers are loss weights, which must not be negative or all 0
    stores_counts: whether a separate file stores the number of values per pair; if not, `counts` computes it
    """

    number: ClassVar[np.dtype[Any]] = FLOAT
    width: ClassVar[int] = 1
    bounds: ClassVar[tuple[float, float]] = FINITE
    sides: ClassVar[tuple[int, ...]] = ()
    filler: ClassVar[int] = 0
    are_weights: ClassVar[bool] = False
    stores_counts: ClassVar[bool] = False

    @abstractmethod
    def read(self, items: ColumnItems) -> Rows:
        """Read the values of some pairs, in the model's token order. Raises InputError with FILE:LINE for a wrong value."""

    def counts(self, lengths: NDArray[Any]) -> NDArray[Any]:
        """(...) number of values per pair. lengths: (..., 2) tokens of source and target, without EOS"""
        raise NotImplementedError

    def fits(self, rows: Rows, lengths: NDArray[Any]) -> bool:
        """Whether stored values can belong to pairs of these lengths. lengths: (N, 2)"""
        return True

    @abstractmethod
    def of_batch(self, rows: Rows) -> NDArray[Any]:
        """(B, ...) the values of a batch's pairs, padded."""

    @abstractmethod
    def ones(self, num_pairs: int, target_length: int) -> Rows:
        """Dummy values for measurements and trial runs. target_length: T of each pair, including EOS"""

    def positions(self, source: int, target: int) -> int | None:
        """The length of the second dimension in a batch padded to S and T; None if there is no second dimension."""
        return None

    def narrowed(self, values: "Tensor", target: int) -> "Tensor":
        """(B, ...) the values without padding that none of these pairs needs. target: T of these pairs"""
        return values


def column_kind(name: str) -> ColumnKind:
    """Build a kind of column by name. For an unknown name, raises UserError with the most similar one."""
    return registry.find("column", name).cls()  # type: ignore[no-any-return]


def padded_rows(rows: Rows, filler: int, number: type) -> NDArray[Any]:
    """(B, L, ...) the values of pairs, padded to the largest number of values, L.

    filler: number to pad with; number: type of the result
    """
    lengths = rows.lengths.astype(np.int64)  # B
    table = np.full((len(lengths), int(lengths.max()), *rows.values.shape[1:]), filler, number)  # B L ...
    table[np.arange(table.shape[1]) < lengths[:, None]] = rows.values  # the mask: B L
    return table
