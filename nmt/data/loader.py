"""The loader: provides the micro-batches of each update as tensors, starting at any position in any epoch."""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from nmt.batch import Batch, make_batch, pad_flat
from nmt.data.batching import GROUPS_PER_UPDATE, Indices, micro_batches
from nmt.data.plan import BatchPlan, Position
from nmt.data.shards import Corpus
from nmt.errors import ArtefactError
from nmt.noises.base import Noise
from nmt.rows import Rows


@dataclass(frozen=True)
class UpdateBatches:
    """The data of one update.

    batches: micro-batches of this rank; every rank has the same number of them
    idle: number of final batches that only keep the ranks in step and do not contribute
    tokens: number of target tokens on all ranks
    source_lengths, target_lengths: (N,) int64 tokens of the pairs on all ranks, including EOS
    after: position after this update
    ends_epoch: whether this is the last update of its epoch
    """

    batches: list[Batch]
    idle: int
    tokens: int
    source_lengths: Indices
    target_lengths: Indices
    after: Position
    ends_epoch: bool


def rows_of(corpus: Corpus, pairs: Indices) -> tuple[Rows, Rows]:
    """The source ids and target ids of pairs (N,), without EOS."""
    source = Rows(corpus.sources(pairs), corpus.source_lengths[pairs].astype(np.int64))
    return source, Rows(corpus.targets(pairs), corpus.target_lengths[pairs].astype(np.int64))


def to_batch(corpus: Corpus, pairs: Indices, changed: tuple[Rows, Rows] | None = None) -> Batch:
    """Make a padded batch of pairs (B,) on the CPU. changed: their sources and targets, if noise has changed them"""
    columns = {name: (column.kind, column.take(pairs)) for name, column in corpus.columns.items()}
    return make_batch(*(changed or rows_of(corpus, pairs)), columns)


_Item = TypeVar("_Item")


def prefetched(items: Iterator[_Item], depth: int = 2) -> Generator[_Item]:
    """Produce items in advance in a thread. Errors in the thread are raised here; closing the generator ends the thread.

    depth: maximum number of items produced in advance
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
    """An endless stream of updates that follow a plan. It can start at any update without reading the previous ones.

    max_tokens: maximum cells per micro-batch, including padding; does not affect results
    rank, ranks: index of the share of each update that this loader provides, and the number of shares
    device: type of the computing device; batches for a GPU are in page-locked memory, so that copying overlaps with computing
    noises: noises to apply in each epoch, in this order; updates are planned by the original lengths
    """

    plan: BatchPlan
    max_tokens: int
    rank: int = 0
    ranks: int = 1
    device: str = "cpu"
    noises: Sequence[Noise] = ()

    @property
    def corpus(self) -> Corpus:
        return self.plan.corpus

    def updates(self, position: Position) -> Iterator[UpdateBatches]:
        """Yield updates, starting at a position. Raises ArtefactError if no update starts there."""
        if position.pairs and position.pairs >= len(self.corpus):
            size = f"the data has only {len(self.corpus):,} pairs"
            raise ArtefactError(
                f"the run's position does not match this data: {size} (use the data the run was trained on)"
            )
        while len(self.corpus):
            part, epoch = self.plan.part(position), position.epoch
            for number in range(part.update_at(position.pairs - part.start), len(part)):
                read = part.start + part.num_pairs(number + 1)
                last = read == len(self.corpus)
                place = part.next_place if number + 1 == len(part) else part.place
                position = Position(epoch + 1, 0, place) if last else Position(epoch, read, place)
                yield self._share(part.update(number), epoch, position, last)

    @property
    def column_kinds(self) -> dict[str, str]:
        """The kind of each column by name."""
        return {name: column.kind for name, column in self.corpus.columns.items()}

    def longest(self) -> int:
        """The number of tokens in the longest side of any pair, including EOS."""
        return 1 + max(int(lengths.max()) for lengths in (self.corpus.source_lengths, self.corpus.target_lengths))

    def largest_micro_batch(self) -> int:
        """Size of this rank's share of the largest group in the first part of the first epoch, in tokens, including padding."""
        part = self.plan.part(Position())
        pairs = part.order % len(self.corpus)
        longer = np.maximum(self.corpus.source_lengths[pairs], self.corpus.target_lengths[pairs]).astype(np.int64) + 1
        cells = np.maximum.reduceat(longer, part.groups[:-1]) * np.diff(part.groups)
        return int(-(-cells.max() // self.ranks))

    def updates_per_epoch(self) -> int:
        """The approximate number of updates per epoch."""
        by_tokens = -(-(int(self.plan.tokens_per_epoch()) + len(self.corpus)) // self.plan.batch_tokens)
        return min(by_tokens, -(-len(self.corpus) // GROUPS_PER_UPDATE))  # a group has at least one pair

    def _share(self, groups: list[Indices], epoch: int, after: Position, last: bool) -> UpdateBatches:
        """This rank's share of an update. groups: pairs of similar length, numbered as in `PartPlan.order`"""
        draws = np.concatenate(groups)  # N
        pairs = draws % len(self.corpus)  # N
        changed = self._changed_sentences(pairs, draws, epoch)
        if changed is None:
            lengths = self.corpus.source_lengths[pairs], self.corpus.target_lengths[pairs]  # N, N
            groups = np.split(np.arange(len(draws)), _ends(groups))
        else:
            lengths = changed[0].lengths, changed[1].lengths  # N, N
            groups = regrouped(groups, *lengths)
        rows = np.concatenate(groups)  # N, positions in `draws`
        source, target = (side[rows].astype(np.int64) + 1 for side in lengths)  # N, N
        owner = np.split(owners(target, self.ranks), _ends(groups))  # for each group, the rank of each pair
        divided = []
        for rank in range(self.ranks):
            shares = [group[of == rank] for group, of in zip(groups, owner, strict=True)]
            divided.append(list(micro_batches(shares, *lengths, self.max_tokens, self.device)))
        idle = max(map(len, divided)) - len(divided[self.rank])
        own = [*divided[self.rank], *[rows[:1]] * idle]
        batches = [self._batch(of_batch, pairs, draws, changed, epoch) for of_batch in own]
        if self.device == "cuda":
            batches = [batch.pin() for batch in batches]
        return UpdateBatches(batches, idle, int(target.sum()), source, target, after, last)

    def _changed_sentences(self, pairs: Indices, draws: Indices, epoch: int) -> tuple[Rows, Rows] | None:
        """The sources and targets of an update's pairs after noise that changes tokens; None if there is no such noise."""
        changing = [noise for noise in self.noises if noise.changes_sentences]
        if not changing:
            return None
        source, target = rows_of(self.corpus, pairs)
        for noise in changing:
            source, target = noise.sentences(source, target, draws, epoch)
        return source, target

    def _batch(
        self, rows: Indices, pairs: Indices, draws: Indices, changed: tuple[Rows, Rows] | None, epoch: int
    ) -> Batch:
        """Make the batch that the model reads, from rows (B,) of an update. pairs, draws, changed: for all rows of the update"""
        pairs = pairs[rows]  # B
        if changed is None:
            batch = to_batch(self.corpus, pairs)
        else:
            source, target = (Rows(side.take(rows), side.lengths[rows]) for side in changed)
            batch = to_batch(self.corpus, pairs, (source, target))
            if not all(noise.keeps_text for noise in self.noises if noise.changes_sentences):
                clean = pad_flat(self.corpus.sources(pairs), self.corpus.source_lengths[pairs])  # B S'
                batch = replace(batch, clean_source=clean)
        for noise in self.noises:
            batch = noise.read(batch, draws[rows], epoch)
        return batch


def _ends(groups: list[Indices]) -> Indices:
    """End positions of all groups except the last, for splitting their concatenation."""
    return np.cumsum([len(group) for group in groups])[:-1]


def regrouped(groups: list[Indices], source_lengths: Indices, target_lengths: Indices) -> list[Indices]:
    """Group an update's pairs by similar length again, because noise has changed their lengths since they were planned.

    groups: planned groups, whose sizes are kept; source_lengths, target_lengths: (N,) lengths of all pairs, in order
    returns: groups of positions in that order, from short to long
    """
    longer = np.maximum(source_lengths, target_lengths)
    order = np.lexsort((source_lengths, target_lengths, longer))
    sizes = sorted(map(len, groups), reverse=True)  # groups have equal token counts, so short pairs form large ones
    return np.split(order, np.cumsum(sizes)[:-1])


def owners(tokens: Indices, ranks: int) -> Indices:
    """(N,) the rank of each pair in an update. Ranks get about the same number of tokens, and neighbours stay together.

    tokens: (N,) target tokens of the pairs, in order
    """
    middles = 2 * np.cumsum(tokens) - tokens
    return middles * ranks // (2 * int(tokens.sum()))
