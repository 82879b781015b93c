"""A batch of sentence pairs as tensors, with columns of data by name; the only maker of batches.

B sentences, S source and T target positions, L links; padded at the right.
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
    """Data that belong to the pairs of a batch.

    values: (B, ...) as the kind of column says
    kind: its name: "pair" has (B,) a number of each pair, float32
    """

    values: Tensor
    kind: str


class MissingColumnError(UserError):
    """A column that a criterion reads and the pairs do not have. name: of the column"""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True)
class Batch:
    """Sentence pairs of ids (int64).

    source: (B, S) each ends with EOS
    target: (B, T + 1) each starts with BOS and ends with EOS
    columns: further data of the pairs, by name
    noisy_target_input: (B, T) what the model reads in place of the target, if training adds noise
    clean_source: (B, S') the source before the noise, if training adds some to it
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
        """The values of a column; MissingColumnError if the data have no such column."""
        if name not in self.columns:
            others = f"they have {', '.join(map(quoted, self.columns))}; " if self.columns else ""
            mend = f"{others}nmt prepare --column {quoted(name)}=FILE adds it"
            message = f"the data have no column '{quoted(name)}' ({mend})"
            raise MissingColumnError(name, message)
        return self.columns[name].values

    @property
    def target_input(self) -> Tensor:
        """(B, T) the model's input: BOS y1 ... yn, or `noisy_target_input`."""
        return self.target[:, :-1] if self.noisy_target_input is None else self.noisy_target_input

    @property
    def without_noise(self) -> "Batch":
        """The pairs as they are read where no noise is added, as by a teacher."""
        source = self.source if self.clean_source is None else self.clean_source
        return replace(self, source=source, noisy_target_input=None, clean_source=None)

    @property
    def target_output(self) -> Tensor:
        """(B, T) the tokens to predict: y1 ... yn EOS."""
        return self.target[:, 1:]

    @property
    def num_target_tokens(self) -> Tensor:
        """() target tokens to predict, EOS counted, padding not."""
        return (self.target_output != PAD).sum()

    @property
    def cells(self) -> int:
        """Tokens of the longer side, padding counted: what --max-tokens bounds."""
        return len(self) * max(self.source.shape[1], self.target.shape[1] - 1)

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device; from pinned memory the copy does not block."""
        return self._map(lambda values: values.to(device, non_blocking=True))

    def repeated(self, times: int) -> "Batch":
        """All pairs several times, one copy after the other."""
        return self._map(lambda values: values.repeat(times, *[1] * (values.dim() - 1)))

    def pin(self) -> "Batch":
        """The batch in page-locked memory, from which a GPU copies while it computes."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        columns = {name: Column(change(column.values), column.kind) for name, column in self.columns.items()}
        noise = (None if of is None else change(of) for of in (self.noisy_target_input, self.clean_source))
        return Batch(change(self.source), change(self.target), columns, *noise)

    def rows(self, rows: slice) -> "Batch":
        """Some of the pairs, without padding that none of them needs."""
        source, target = _trimmed(self.source[rows], PAD), _trimmed(self.target[rows], PAD)
        columns = {
            name: Column(column_kind(of.kind).narrowed(of.values[rows], target.shape[1] - 1), of.kind)
            for name, of in self.columns.items()
        }
        noisy = None if self.noisy_target_input is None else self.noisy_target_input[rows, : target.shape[1] - 1]
        clean = None if self.clean_source is None else _trimmed(self.clean_source[rows], PAD)
        return Batch(source, target, columns, noisy, clean)

    def split(self, max_tokens: int) -> list["Batch"]:
        """The same pairs in the same order in batches of at most `max_tokens` cells; a single pair is never split."""
        if len(self) == 1 or self.cells <= max_tokens:
            return [self]
        half = len(self) // 2
        halves = self.rows(slice(0, half)), self.rows(slice(half, len(self)))
        return [part for batch in halves for part in batch.split(max_tokens)]


def _trimmed(values: Tensor, padding: int) -> Tensor:
    """values: (B, L); without the positions at the end that are padding in all rows."""
    return values[:, : int((values != padding).sum(1).max())]


def make_batch(source: Rows, target: Rows, columns: Mapping[str, tuple[str, Rows]] | None = None) -> Batch:
    """Pad sentence pairs into a batch on the CPU. source, target: ids without control symbols."""
    padded = {}
    for name, (kind, rows) in (columns or {}).items():
        padded[name] = Column(torch.from_numpy(column_kind(kind).of_batch(rows)), kind)
    return Batch(pad_flat(*source), pad_flat(*target, [BOS]), padded)


def dummy_batch(rows: int, source_length: int, target_length: int, kinds: Mapping[str, str] | None = None) -> Batch:
    """Pairs of unknown words, to measure or to try with. Lengths count EOS; columns are of ones."""
    source, target = (
        Rows(np.full(rows * (length - 1), UNK), np.full(rows, length - 1)) for length in (source_length, target_length)
    )
    columns = {name: (kind, column_kind(kind).ones(rows, target_length)) for name, kind in (kinds or {}).items()}
    return make_batch(source, target, columns)


def flatten(rows: Sequence[ArrayLike]) -> Rows:
    """Ids of one array or list per row as `Rows`."""
    arrays = [np.asarray(row, dtype=np.int64) for row in rows]
    return Rows(np.concatenate(arrays), np.array([len(row) for row in arrays]))


def pad_rows(rows: Sequence[ArrayLike], first: Sequence[int] = ()) -> Tensor:
    """`pad_flat` of one array of ids a row."""
    return pad_flat(*flatten(rows), first)


def pad_flat(ids: NDArray[Any], lengths: NDArray[Any], first: Sequence[int] = ()) -> Tensor:
    """(B, L) int64: each row is `first`, its ids, EOS, then PAD. ids: of all rows; lengths: (B,) ids of each."""
    lengths = lengths.astype(np.int64)
    table = np.full((len(lengths), len(first) + int(lengths.max()) + 1), PAD, dtype=np.int64)
    table[:, : len(first)] = first
    after_first = table[:, len(first) :]
    after_first[np.arange(after_first.shape[1]) < lengths[:, None]] = ids
    after_first[np.arange(len(lengths)), lengths] = EOS
    return torch.from_numpy(table)


def token_positions(ids: Tensor) -> Tensor:
    """The flat positions of tokens: (N,). ids: (...), with padding"""
    return (ids != PAD).flatten().nonzero().squeeze(1)


def predicting_positions(ids: Tensor) -> Tensor:
    """The flat positions of target tokens after which something is predicted, all before EOS: (N,). ids: (...)"""
    return ((ids != PAD) & (ids != EOS)).flatten().nonzero().squeeze(1)
