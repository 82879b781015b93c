"""The loader: the micro-batches of each update as tensors, from any position of any epoch on."""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from nmt.batch import Batch, make_batch, pad_flat
from nmt.data.batching import (
    GROUPS_PER_UPDATE,
    PART_PAIRS,
    Indices,
    Plan,
    micro_batches,
    plan_pairs,
    plan_part,
    tokens_of_group,
)
from nmt.data.mixture import Draws, Mixture, PartStart
from nmt.data.shards import Corpus
from nmt.errors import ArtefactError
from nmt.files import Count, Ordinal
from nmt.noises.base import Noise
from nmt.rows import Rows


@dataclass(frozen=True)
class Position:
    """A position in the data: `pairs` pairs of `epoch` (counted from 1) have been read.

    part: of mixed corpora, where the part begins that the position is in; None at the very beginning
    """

    epoch: Ordinal = 1
    pairs: Count = 0
    part: PartStart | None = None


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


def to_batch(corpus: Corpus, indices: Indices) -> Batch:
    """The pairs of these indices as one padded batch on the CPU."""
    source = corpus.sources(indices), corpus.source_lengths[indices]
    target = corpus.targets(indices), corpus.target_lengths[indices]
    return make_batch(source, target, _columns(corpus, indices))


def _columns(corpus: Corpus, indices: Indices) -> dict[str, tuple[str, Rows]]:
    """The kind of each column and its rows for the pairs of these indices."""
    return {name: (column.kind, column.take(indices)) for name, column in corpus.columns.items()}


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
    device: type of the device that computes; for a GPU batches are in page-locked memory, from which it copies while it computes
    noises: what changes pairs in each epoch, in this order; updates are planned by the tokens of the corpus
    mixture: the proportions of the corpora; an epoch has as many pairs as without, but not each pair once
    """

    corpus: Corpus
    batch_tokens: int
    max_tokens: int
    seed: int
    rank: int = 0
    ranks: int = 1
    device: str = "cpu"
    noises: Sequence[Noise] = ()
    mixture: Mixture | None = None

    def updates(self, position: Position) -> Iterator[UpdateBatches]:
        """The updates from a position on; ArtefactError when no update begins there."""
        if position.pairs and position.pairs >= len(self.corpus):
            raise ArtefactError(f"the run's position does not fit this data: it has {len(self.corpus):,} pairs")
        while len(self.corpus):
            plan, part, following = self._plan(position)
            epoch = position.epoch
            for number in range(plan.update_at(position.pairs - plan.start), len(plan)):
                read = plan.start + plan.num_pairs(number + 1)
                last = read == len(self.corpus)
                at = following if number + 1 == len(plan) else part
                position = Position(epoch + 1, 0, at) if last else Position(epoch, read, at)
                yield self._share(plan.update(number), epoch, position, last)

    def _plan(self, position: Position) -> tuple[Plan, PartStart | None, PartStart | None]:
        """The plan of the part that a position is in, and of mixed corpora where this part and the next begin."""
        lengths, epoch = (self.corpus.source_lengths, self.corpus.target_lengths), position.epoch
        if self.mixture is None:
            part = position.pairs // PART_PAIRS
            return plan_part(*lengths, self.batch_tokens, self.seed, epoch, part), None, None
        start = self.mixture.part(position.part, epoch)
        draws = self.mixture.draw(start, min(PART_PAIRS, len(self.corpus) - start.pairs))
        source, target = (side[draws.numbers % len(self.corpus)] for side in lengths)
        if (updates := self.mixture.updates_left(start)) is not None:  # the part ends with the stage, or before it
            tokens = np.cumsum(target.astype(np.int64) + 1)
            stage_tokens = updates * GROUPS_PER_UPDATE * tokens_of_group(self.batch_tokens)
            count = max(1, int(np.searchsorted(tokens, stage_tokens, side="right")))
            draws, source, target = Draws(draws.numbers[:count], draws.corpora[:count]), source[:count], target[:count]
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch], counter=[0, 0, 0, start.pairs]))
        plan = plan_pairs(start.pairs, draws.numbers, source, target, self.batch_tokens, random)
        return plan, start, self.mixture.after(start, draws, len(plan))

    @property
    def column_kinds(self) -> dict[str, str]:
        """The kind of each column by name."""
        return {name: column.kind for name, column in self.corpus.columns.items()}

    def longest(self) -> int:
        """Tokens of the longest side of all pairs, EOS counted."""
        return 1 + max(int(lengths.max()) for lengths in (self.corpus.source_lengths, self.corpus.target_lengths))

    def largest_micro_batch(self) -> int:
        """Tokens, padding counted, of this rank's share of the largest group of the first part of the first epoch."""
        plan, _, _ = self._plan(Position())
        pairs = plan.order % len(self.corpus)
        longer = np.maximum(self.corpus.source_lengths[pairs], self.corpus.target_lengths[pairs]).astype(np.int64) + 1
        cells = np.maximum.reduceat(longer, plan.groups[:-1]) * np.diff(plan.groups)
        return int(-(-cells.max() // self.ranks))

    def updates_per_epoch(self) -> int:
        """The number of updates of an epoch, nearly."""
        lengths = self.corpus.target_lengths
        tokens = lengths.sum(dtype=np.int64) if self.mixture is None else self.mixture.per_epoch(lengths)
        by_tokens = -(-(int(tokens) + len(self.corpus)) // self.batch_tokens)
        return min(by_tokens, -(-len(self.corpus) // GROUPS_PER_UPDATE))  # a group has a pair at least

    def _share(self, groups: list[Indices], epoch: int, after: Position, last: bool) -> UpdateBatches:
        """This rank's share of an update. groups: pairs of nearly one length, numbered as in `Plan.order`"""
        draws = np.concatenate(groups)
        pairs = draws % len(self.corpus)
        rows = np.arange(len(draws))  # positions in `draws`
        changed = self._changed_sentences(pairs, draws, epoch)
        if changed is None:
            lengths = self.corpus.source_lengths[pairs], self.corpus.target_lengths[pairs]
            groups = np.split(rows, np.cumsum([len(group) for group in groups])[:-1])
        else:
            lengths = changed[0].lengths, changed[1].lengths
            groups = grouped_anew(groups, *lengths)
            rows = np.concatenate(groups)
        source, target = (side[rows].astype(np.int64) + 1 for side in lengths)
        owner = np.split(owners(target, self.ranks), np.cumsum([len(group) for group in groups])[:-1])
        cuts = []
        for rank in range(self.ranks):
            shares = [group[of == rank] for group, of in zip(groups, owner, strict=True)]
            cuts.append(list(micro_batches(shares, *lengths, self.max_tokens, self.device)))
        idle = max(map(len, cuts)) - len(cuts[self.rank])
        batches = [
            self._with_noise(self._read(changed, pairs, of_batch), draws[of_batch], epoch)
            for of_batch in [*cuts[self.rank], *[rows[:1]] * idle]
        ]
        if self.device == "cuda":
            batches = [batch.pin() for batch in batches]
        return UpdateBatches(batches, idle, int(target.sum()), source, target, after, last)

    def _changed_sentences(self, pairs: Indices, draws: Indices, epoch: int) -> tuple[Rows, Rows] | None:
        """The sources and targets of the pairs of an update after noise in their tokens; None without such noise."""
        changing = [noise for noise in self.noises if noise.changes_sentences]
        if not changing:
            return None
        corpus = self.corpus
        source = Rows(corpus.sources(pairs), corpus.source_lengths[pairs].astype(np.int64))
        target = Rows(corpus.targets(pairs), corpus.target_lengths[pairs].astype(np.int64))
        for noise in changing:
            source, target = noise.sentences(source, target, draws, epoch)
        return source, target

    def _read(self, changed: tuple[Rows, Rows] | None, pairs: Indices, rows: Indices) -> Batch:
        """The batch of some rows of an update, before noise in what is read of it. changed, pairs: of all rows"""
        if changed is None:
            return to_batch(self.corpus, pairs[rows])
        source, target = ((side.take(rows), side.lengths[rows]) for side in changed)
        batch = make_batch(source, target, _columns(self.corpus, pairs[rows]))
        if all(noise.keeps_text for noise in self.noises if noise.changes_sentences):
            return batch
        sources = self.corpus.sources(pairs[rows]), self.corpus.source_lengths[pairs[rows]]
        return replace(batch, clean_source=pad_flat(*sources))

    def _with_noise(self, batch: Batch, draws: Indices, epoch: int) -> Batch:
        """The batch as the model reads it in an epoch. draws: (B,) its pairs, numbered as in `Plan.order`"""
        for noise in self.noises:
            batch = noise.read(batch, draws, epoch)
        return batch


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
