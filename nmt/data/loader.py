"""The loader: the micro-batches of each update as tensors, from any position of any epoch on."""

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from nmt.batch import Batch, make_batch
from nmt.data.batching import PART_PAIRS, Indices, Plan, micro_batches, plan_part
from nmt.data.noise import WordDropout
from nmt.data.shards import Corpus
from nmt.data.subword_sampling import SampledPairs, SubwordSampling
from nmt.errors import ArtefactError
from nmt.symbols import ColumnKind


@dataclass(frozen=True)
class Position:
    """A position in the data: `pairs` pairs of `epoch` (counted from 1) have been read."""

    epoch: int = 1
    pairs: int = 0


@dataclass(frozen=True)
class UpdateBatches:
    """The data of one update.

    batches: the micro-batches of this rank, as many as of every other rank
    idle: batches at the end that only keep step with other ranks and do not count
    tokens: target tokens of all ranks
    source_lengths, target_lengths: (N,) int64 tokens of all ranks' pairs, EOS counted
    after: the position after this update
    ends_epoch: whether it is the last update of its epoch
    """

    batches: list[Batch]
    idle: int
    tokens: int
    source_lengths: Indices
    target_lengths: Indices
    after: Position
    ends_epoch: bool


def to_batch(corpus: Corpus | SampledPairs, indices: Indices) -> Batch:
    """The pairs of these indices as one padded batch on the CPU."""
    return make_batch(
        (corpus.sources(indices), corpus.source_lengths[indices]),
        (corpus.targets(indices), corpus.target_lengths[indices]),
        {name: (column.kind, column.take(indices)) for name, column in corpus.columns.items()},
    )


_Item = TypeVar("_Item")


def ahead(items: Iterator[_Item], depth: int = 2) -> Generator[_Item]:
    """The same items, made in advance by a thread, whose errors are raised here; closing the generator ends the thread.

    depth: most items that wait
    """
    maker = ThreadPoolExecutor(1, "loader")
    try:
        waiting = deque(maker.submit(next, items, None) for _ in range(depth + 1))
        while (item := waiting.popleft().result()) is not None:
            waiting.append(maker.submit(next, items, None))
            yield item
    finally:
        maker.shutdown(cancel_futures=True)


@dataclass
class Loader:
    """The endless stream of updates over a corpus; it begins at any update without reading the previous ones.

    batch_tokens: target tokens of an update, EOS counted
    max_tokens: cells of a micro-batch, padding counted; changes no result
    rank, ranks: the share of each update that this loader gives, and the number of shares
    pinned: whether batches are in page-locked memory, from which a GPU copies while it computes
    noise: what is done to the pairs of a batch in an epoch
    sampling: cuts the words of the pairs anew in each epoch; updates are planned by the tokens of the corpus all the same
    """

    corpus: Corpus
    batch_tokens: int
    max_tokens: int
    seed: int
    rank: int = 0
    ranks: int = 1
    pinned: bool = False
    noise: WordDropout = WordDropout()
    sampling: SubwordSampling | None = None

    def updates(self, position: Position) -> Iterator[UpdateBatches]:
        """The updates from a position on; ArtefactError when no update begins there."""
        epoch, pairs = position.epoch, position.pairs
        if pairs and pairs >= len(self.corpus):
            raise ArtefactError(f"the run's position does not fit this data: it has {len(self.corpus):,} pairs")
        while len(self.corpus):
            for plan in self._plans(epoch, pairs):
                for number in range(plan.update_at(max(pairs - plan.start, 0)), len(plan)):
                    read = plan.start + plan.num_pairs(number + 1)
                    last = read == len(self.corpus)
                    after = Position(epoch + 1, 0) if last else Position(epoch, read)
                    yield self._share(plan.update(number), epoch, after, last)
            epoch, pairs = epoch + 1, 0

    def _plans(self, epoch: int, pairs: int) -> Iterator[Plan]:
        """The plans of an epoch's parts, from the part on in which pair number `pairs` is."""
        for part in range(pairs // PART_PAIRS, -(-len(self.corpus) // PART_PAIRS)):
            lengths = self.corpus.source_lengths, self.corpus.target_lengths
            yield plan_part(*lengths, self.batch_tokens, self.seed, epoch, part)

    @property
    def column_kinds(self) -> dict[str, ColumnKind]:
        """The kind of each column by name."""
        return {name: column.kind for name, column in self.corpus.columns.items()}

    def longest(self) -> int:
        """Tokens of the longest side of all pairs, EOS counted."""
        return 1 + max(int(lengths.max()) for lengths in (self.corpus.source_lengths, self.corpus.target_lengths))

    def largest_micro_batch(self) -> int:
        """Tokens, padding counted, of this rank's share of the largest group of the first part of the first epoch."""
        lengths = self.corpus.source_lengths, self.corpus.target_lengths
        plan = plan_part(*lengths, self.batch_tokens, self.seed, 1, 0)
        longer = np.maximum(*(side[plan.order] for side in lengths)).astype(np.int64) + 1
        cells = np.maximum.reduceat(longer, plan.groups[:-1]) * np.diff(plan.groups)
        return int(-(-cells.max() // self.ranks))

    def updates_per_epoch(self) -> int:
        """The number of updates of an epoch, nearly."""
        return -(-(int(self.corpus.target_lengths.sum(dtype=np.int64)) + len(self.corpus)) // self.batch_tokens)

    def _share(self, groups: list[Indices], epoch: int, after: Position, last: bool) -> UpdateBatches:
        """This rank's share of an update. groups: pairs of nearly one length"""
        pairs = np.concatenate(groups)
        corpus: Corpus | SampledPairs = self.corpus
        rows = pairs  # in `corpus`
        if self.sampling is not None:
            corpus = sampled = self.sampling(pairs, epoch)
            groups = grouped_anew(groups, sampled.source_lengths, sampled.target_lengths)
            rows = np.concatenate(groups)
        lengths = corpus.source_lengths, corpus.target_lengths
        source, target = (side[rows].astype(np.int64) + 1 for side in lengths)
        owner = np.split(owners(target, self.ranks), np.cumsum([len(group) for group in groups])[:-1])
        cuts = []
        for rank in range(self.ranks):
            shares = [group[of == rank] for group, of in zip(groups, owner, strict=True)]
            cuts.append(list(micro_batches([share for share in shares if len(share)], *lengths, self.max_tokens)))
        idle = max(map(len, cuts)) - len(cuts[self.rank])
        batches = [
            self.noise(to_batch(corpus, indices), indices if corpus is self.corpus else pairs[indices], epoch)
            for indices in [*cuts[self.rank], *[rows[:1]] * idle]
        ]
        if self.pinned:
            batches = [batch.pin() for batch in batches]
        return UpdateBatches(batches, idle, int(target.sum()), source, target, after, last)


def grouped_anew(groups: list[Indices], source_lengths: Indices, target_lengths: Indices) -> list[Indices]:
    """Groups of nearly one length of the pairs of an update, which have other lengths than those it was planned by.

    groups: as planned, of which the sizes stay; source_lengths, target_lengths: (N,) of all pairs, in their order
    returns: positions in that order, from short to long
    """
    longer = np.maximum(source_lengths, target_lengths)
    order = np.lexsort((source_lengths, target_lengths, longer))
    sizes = sorted(map(len, groups), reverse=True)  # of as many tokens each: the shortest has the most pairs
    return np.split(order, np.cumsum(sizes)[:-1])


def owners(tokens: Indices, ranks: int) -> Indices:
    """(N,) the rank of each pair of an update: ranks get about the same number of tokens, and neighbours stay together.

    tokens: (N,) target tokens of the pairs in their order
    """
    middles = 2 * np.cumsum(tokens) - tokens
    return middles * ranks // (2 * int(tokens.sum()))
