"""A batch of sentence pairs as tensors, with columns of extra data by name. All batches are made here.

Dimensions: B sentences, S source and T target positions, L links. Padding is on the right.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from nmt.columns.base import column_kind
from nmt.errors import UserError, quoted
from nmt.rows import Rows
from nmt.symbols import BOS, EOS, PAD, UNK


@dataclass(frozen=True)
class Column:
    """Extra data for the pairs of a batch.

    values: (B, ...) values, with a shape that depends on the kind of column
    kind: name of the kind; "pair" has one float32 number per pair, (B,)
    """

    values: Tensor
    kind: str


class MissingColumnError(UserError):
    """Raised if a criterion needs a column that the data does not have. name: name of the column"""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True)
class Batch:
    """A batch of sentence pairs as ids (int64).

    source: (B, S) each row ends with EOS
    target: (B, T + 1) each row starts with BOS and ends with EOS
    columns: extra data of the pairs, by name
    noisy_target_input: (B, T) the model's target input, if training adds noise to it
    clean_source: (B, S') the source without noise, if training adds noise to it
    """

    source: Tensor
    target: Tensor
    columns: Mapping[str, Column] = field(default_factory=dict)
    noisy_target_input: Tensor | None = None
    clean_source: Tensor | None = None

    def __len__(self) -> int:
        return len(self.source)

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> Tensor:
        """The values of a column. Raises MissingColumnError if the data has no column of this name."""
        if name not in self.columns:
            others = f"existing columns: {', '.join(map(quoted, self.columns))}; " if self.columns else ""
            fix = f"{others}`nmt prepare --column {quoted(name)}=FILE` adds it"
            message = f"the data has no column '{quoted(name)}' ({fix})"
            raise MissingColumnError(name, message)
        return self.columns[name].values

    @property
    def target_input(self) -> Tensor:
        """(B, T) the model's input: BOS y1 ... yn, or `noisy_target_input`."""
        return self.target[:, :-1] if self.noisy_target_input is None else self.noisy_target_input

    @property
    def without_noise(self) -> "Batch":
        """The pairs without noise, as a teacher model reads them."""
        source = self.source if self.clean_source is None else self.clean_source
        return replace(self, source=source, noisy_target_input=None, clean_source=None)

    @property
    def target_output(self) -> Tensor:
        """(B, T) the tokens to predict: y1 ... yn EOS."""
        return self.target[:, 1:]

    @property
    def num_target_tokens(self) -> Tensor:
        """() number of target tokens to predict, including EOS but not padding."""
        return (self.target_output != PAD).sum()

    @property
    def cells(self) -> int:
        """The number of tokens on the longer side, including padding; --max-tokens limits it."""
        return len(self) * max(self.source.shape[1], self.target.shape[1] - 1)

    def to(self, device: torch.device) -> "Batch":
        """Copy the batch to a device. Copies from pinned memory do not block."""
        return self._map(lambda values: values.to(device, non_blocking=True))

    def repeated(self, times: int) -> "Batch":
        """Repeat the whole batch `times` times, one copy after the other."""
        return self._map(lambda values: values.repeat(times, *[1] * (values.dim() - 1)))

    def pin(self) -> "Batch":
        """Move the batch to page-locked memory, from which a GPU can copy while it computes."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        columns = {name: Column(change(column.values), column.kind) for name, column in self.columns.items()}
        noise = (None if of is None else change(of) for of in (self.noisy_target_input, self.clean_source))
        return Batch(change(self.source), change(self.target), columns, *noise)

    def rows(self, rows: slice) -> "Batch":
        """Select some of the pairs, and remove padding that none of them needs."""
        source, target = _trimmed(self.source[rows], PAD), _trimmed(self.target[rows], PAD)
        columns = {
            name: Column(column_kind(of.kind).narrowed(of.values[rows], target.shape[1] - 1), of.kind)
            for name, of in self.columns.items()
        }
        noisy = None if self.noisy_target_input is None else self.noisy_target_input[rows, : target.shape[1] - 1]
        clean = None if self.clean_source is None else _trimmed(self.clean_source[rows], PAD)
        return Batch(source, target, columns, noisy, clean)

    def split(self, max_tokens: int) -> list["Batch"]:
        """Split into batches of at most `max_tokens` cells, in the same order. A single pair is never split."""
        if len(self) == 1 or self.cells <= max_tokens:
            return [self]
        half = len(self) // 2
        halves = self.rows(slice(0, half)), self.rows(slice(half, len(self)))
        return [part for batch in halves for part in batch.split(max_tokens)]


def _trimmed(values: Tensor, padding: int) -> Tensor:
    """Remove trailing positions that are padding in all rows. values: (B, L)"""
    return values[:, : int((values != padding).sum(1).max())]


def make_batch(source: Rows, target: Rows, columns: Mapping[str, tuple[str, Rows]] | None = None) -> Batch:
    """Pad sentence pairs into a batch on the CPU. source, target: ids without control symbols."""
    padded = {}
    for name, (kind, rows) in (columns or {}).items():
        padded[name] = Column(torch.from_numpy(column_kind(kind).of_batch(rows)), kind)
    return Batch(pad_flat(*source), pad_flat(*target, [BOS]), padded)


def dummy_batch(rows: int, source_length: int, target_length: int, kinds: Mapping[str, str] | None = None) -> Batch:
    """A batch of UNK tokens for measurements and trial runs. Lengths include EOS; columns contain ones."""
    source, target = (
        Rows(np.full(rows * (length - 1), UNK), np.full(rows, length - 1)) for length in (source_length, target_length)
    )
    columns = {name: (kind, column_kind(kind).ones(rows, target_length)) for name, kind in (kinds or {}).items()}
    return make_batch(source, target, columns)


def flatten(rows: Sequence[ArrayLike]) -> Rows:
    """Convert ids, one array or list per row, to `Rows`."""
    arrays = [np.asarray(row, dtype=np.int64) for row in rows]
    return Rows(np.concatenate(arrays), np.array([len(row) for row in arrays]))


def pad_rows(rows: Sequence[ArrayLike], first: Sequence[int] = ()) -> Tensor:
    """Like `pad_flat`, but with one array of ids per row."""
    return pad_flat(*flatten(rows), first)


def pad_flat(ids: NDArray[Any], lengths: NDArray[Any], first: Sequence[int] = ()) -> Tensor:
    """(B, L) int64: each row is `first`, its ids, EOS, then PAD. ids: ids of all rows; lengths: (B,) ids per row"""
    lengths = lengths.astype(np.int64)
    table = np.full((len(lengths), len(first) + int(lengths.max()) + 1), PAD, dtype=np.int64)
    table[:, : len(first)] = first
    after_first = table[:, len(first) :]
    after_first[np.arange(after_first.shape[1]) < lengths[:, None]] = ids
    after_first[np.arange(len(lengths)), lengths] = EOS
    return torch.from_numpy(table)


def token_positions(ids: Tensor) -> Tensor:
    """(N,) flat positions of all tokens that are not padding. ids: (...)"""
    return (ids != PAD).flatten().nonzero().squeeze(1)


def predicting_positions(ids: Tensor) -> Tensor:
    """(N,) flat positions of the tokens after which another one is predicted: BOS and all others before EOS. ids: (...)"""
    return ((ids != PAD) & (ids != EOS)).flatten().nonzero().squeeze(1)
