"""From the plan to tensors: the micro-batches of each update, from any position of any epoch on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nmt.batch import Batch
from nmt.data.batching import Indices, micro_batches, plan_epoch
from nmt.data.shards import Corpus
from nmt.errors import ArtefactError
from nmt.symbols import BOS, EOS, PAD


@dataclass(frozen=True)
class Position:
    """Where the data stands: `pairs` pairs of `epoch` (counted from 1) have been read."""

    epoch: int = 1
    pairs: int = 0


@dataclass(frozen=True)
class UpdateBatches:
    """The data of one update. before, after: the positions on its two sides; ends_epoch: whether it is the last."""

    batches: list[Batch]
    after: Position
    ends_epoch: bool


def padded(rows: Sequence[NDArray[Any]], first: list[int]) -> torch.Tensor:
    """(B, L) int64: each row is `first`, its ids, EOS, then PAD."""
    width = len(first) + max(len(row) for row in rows) + 1
    table = np.full((len(rows), width), PAD, dtype=np.int64)
    for line, row in zip(table, rows, strict=True):
        end = len(first) + len(row)
        line[: len(first)] = first
        line[len(first) : end] = row
        line[end] = EOS
    return torch.from_numpy(table)


def to_batch(corpus: Corpus, indices: Indices) -> Batch:
    """The pairs of these indices as one padded batch on the CPU."""
    return Batch(
        padded([corpus.source(int(i)) for i in indices], []),
        padded([corpus.target(int(i)) for i in indices], [BOS]),
    )


class Loader:
    """The endless stream of updates over a corpus, resumable at any update without reading what came before.

    batch_tokens: target tokens of an update, EOS counted
    max_tokens: rows times columns that a device holds at once; changes no result
    """

    def __init__(self, corpus: Corpus, batch_tokens: int, max_tokens: int, seed: int) -> None:
        self.corpus, self.batch_tokens, self.max_tokens, self.seed = corpus, batch_tokens, max_tokens, seed

    def updates(self, position: Position) -> Iterator[UpdateBatches]:
        """The updates from a position on; ArtefactError when no update begins there."""
        epoch = position.epoch
        pairs = position.pairs
        while True:
            plan = plan_epoch(
                self.corpus.source_lengths, self.corpus.target_lengths, self.batch_tokens, self.seed, epoch
            )
            try:
                first = plan.update_at(pairs)
            except ValueError as error:
                raise ArtefactError(f"the position of the data is not one of this data: {error}") from None
            for number in range(first, len(plan)):
                last = number + 1 == len(plan)
                after = Position(epoch + 1, 0) if last else Position(epoch, plan.pairs_before(number + 1))
                yield UpdateBatches(self._cut(plan.update(number)), after, last)
            epoch, pairs = epoch + 1, 0

    def updates_per_epoch(self) -> int:
        """Updates of the first epoch; the others differ by one at most."""
        return len(plan_epoch(self.corpus.source_lengths, self.corpus.target_lengths, self.batch_tokens, self.seed, 1))

    def _cut(self, groups: list[Indices]) -> list[Batch]:
        lengths = self.corpus.source_lengths, self.corpus.target_lengths
        return [to_batch(self.corpus, indices) for indices in micro_batches(groups, *lengths, self.max_tokens)]
