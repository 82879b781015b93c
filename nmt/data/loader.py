"""The loader: the micro-batches of each update as tensors, from any position of any epoch on."""

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


def rows_of(corpus: Corpus, pairs: Indices) -> tuple[Rows, Rows]:
    """The ids of the sources and of the targets of pairs (N,), without EOS."""
    source = Rows(corpus.sources(pairs), corpus.source_lengths[pairs].astype(np.int64))
    return source, Rows(corpus.targets(pairs), corpus.target_lengths[pairs].astype(np.int64))


def to_batch(corpus: Corpus, pairs: Indices, changed: tuple[Rows, Rows] | None = None) -> Batch:
    """Pairs (B,) as one padded batch on the CPU. changed: their sources and targets where these are not the corpus's"""
    columns = {name: (column.kind, column.take(pairs)) for name, column in corpus.columns.items()}
    return make_batch(*(changed or rows_of(corpus, pairs)), columns)


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
    """The endless stream of updates over a plan; it begins at any update without reading the previous ones.

    max_tokens: cells of a micro-batch, padding counted; changes no result
    rank, ranks: the share of each update that this loader gives, and the number of shares
    device: type of the device that computes; for a GPU batches are in page-locked memory, from which it copies while it computes
    noises: what changes pairs in each epoch, in this order; updates are planned by the tokens of the corpus
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
        """The updates from a position on; ArtefactError when no update begins there."""
        if position.pairs and position.pairs >= len(self.corpus):
            raise ArtefactError(f"the run's position does not fit this data: it has {len(self.corpus):,} pairs")
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
        """Tokens of the longest side of all pairs, EOS counted."""
        return 1 + max(int(lengths.max()) for lengths in (self.corpus.source_lengths, self.corpus.target_lengths))

    def largest_micro_batch(self) -> int:
        """Tokens, padding counted, of this rank's share of the largest group of the first part of the first epoch."""
        part = self.plan.part(Position())
        pairs = part.order % len(self.corpus)
        longer = np.maximum(self.corpus.source_lengths[pairs], self.corpus.target_lengths[pairs]).astype(np.int64) + 1
        cells = np.maximum.reduceat(longer, part.groups[:-1]) * np.diff(part.groups)
        return int(-(-cells.max() // self.ranks))

    def updates_per_epoch(self) -> int:
        """The number of updates of an epoch, nearly."""
        by_tokens = -(-(int(self.plan.tokens_per_epoch()) + len(self.corpus)) // self.plan.batch_tokens)
        return min(by_tokens, -(-len(self.corpus) // GROUPS_PER_UPDATE))  # a group has a pair at least

    def _share(self, groups: list[Indices], epoch: int, after: Position, last: bool) -> UpdateBatches:
        """This rank's share of an update. groups: pairs of nearly one length, numbered as in `PartPlan.order`"""
        draws = np.concatenate(groups)  # N
        pairs = draws % len(self.corpus)  # N
        changed = self._changed_sentences(pairs, draws, epoch)
        if changed is None:
            lengths = self.corpus.source_lengths[pairs], self.corpus.target_lengths[pairs]  # N, N
            groups = np.split(np.arange(len(draws)), _ends(groups))
        else:
            lengths = changed[0].lengths, changed[1].lengths  # N, N
            groups = grouped_anew(groups, *lengths)
        rows = np.concatenate(groups)  # N positions in `draws`
        source, target = (side[rows].astype(np.int64) + 1 for side in lengths)  # N, N
        owner = np.split(owners(target, self.ranks), _ends(groups))  # of each group: the rank of each of its pairs
        cuts = []
        for rank in range(self.ranks):
            shares = [group[of == rank] for group, of in zip(groups, owner, strict=True)]
            cuts.append(list(micro_batches(shares, *lengths, self.max_tokens, self.device)))
        idle = max(map(len, cuts)) - len(cuts[self.rank])
        own = [*cuts[self.rank], *[rows[:1]] * idle]
        batches = [self._batch(of_batch, pairs, draws, changed, epoch) for of_batch in own]
        if self.device == "cuda":
            batches = [batch.pin() for batch in batches]
        return UpdateBatches(batches, idle, int(target.sum()), source, target, after, last)

    def _changed_sentences(self, pairs: Indices, draws: Indices, epoch: int) -> tuple[Rows, Rows] | None:
        """The sources and targets of the pairs of an update after noise in their tokens; None without such noise."""
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
        """The batch of rows (B,) of an update as the model reads it. pairs, draws, changed: of all rows of the update"""
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
    """The place after each group but the last in an array of all of them."""
    return np.cumsum([len(group) for group in groups])[:-1]


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
