"""Mixes corpora with weights that change over time: finds the pair at each position, and how often it was drawn before.

Pairs are drawn from a corpus in a pseudorandom order; all of them are drawn before any is drawn again. The next corpus is chosen
by the Sainte-Laguë method: the k-th pair of a corpus with share s is due at (k - 1/2) / s. So at any point in a stage, each
corpus has provided its share of the pairs, to within about one pair.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.data.batching import FEISTEL_ROUNDS, Indices, hash_keys, mixed, permuted
from nmt.errors import ArtefactError, UserError, quoted, unknown
from nmt.extensions.methods.stages import Stage
from nmt.files import Count

PURPOSE: Final = 4  # purpose argument of `hash_keys`
MAX_DRAWN: Final = 1 << 53  # maximum number of pairs drawn from a corpus


@dataclass(frozen=True)
class PartStart:
    """Where a part of the mixed data starts.

    pairs: number of earlier pairs in its epoch
    updates: number of earlier updates in the run, including those that a rollback has undone
    stage: index of the stage
    earlier, drawn: number of pairs drawn from each corpus in earlier stages, and in this one
    """

    pairs: Count
    updates: Count
    stage: Count
    earlier: tuple[Count, ...]
    drawn: tuple[Count, ...]


class Draws(NamedTuple):
    """Pairs in the order of the data.

    numbers: (N,) index of the pair + (number of its earlier draws) * (number of pairs in all corpora)
    corpora: (N,) corpus of each pair
    """

    numbers: Indices
    corpora: Indices


class Mixture:
    """The corpora of the training data, mixed in the proportions of each stage.

    names: names of the corpora; size: total number of pairs
    """

    def __init__(self, corpora: Sequence[tuple[str, int]], stages: Sequence[Stage], seed: int) -> None:
        """corpora: name and number of pairs of each range of the data. Raises UserError if the weights do not fit."""
        self.names, self.stages, self._seed = list(dict.fromkeys(name for name, _ in corpora)), stages, seed
        lengths = np.array([pairs for _, pairs in corpora], dtype=np.int64)
        starts = np.cumsum(lengths) - lengths
        corpus_of = np.array([self.names.index(name) for name, _ in corpora])  # index of each range's corpus
        self._ranges = [(starts[corpus_of == i], lengths[corpus_of == i]) for i in range(len(self.names))]
        self._sizes = np.array([int(own.sum()) for _, own in self._ranges], dtype=np.int64)
        self.size = int(self._sizes.sum())
        self.shares = [self._shares(stage) for stage in stages]  # (C,) shares for each stage

    def first_part(self, updates: int = 0) -> PartStart:
        """The first part of the data, before any pair has been read. updates: number of earlier updates in the run"""
        nothing = (0,) * len(self.names)
        return PartStart(0, updates, 0, nothing, nothing)

    def _shares(self, stage: Stage) -> NDArray[np.float64]:
        """Return the shares (C,) of the corpora in a stage."""
        if stage.temperature is not None:
            weights = (self._sizes / max(self._sizes.max(), 1)) ** (1 / stage.temperature) * (self._sizes > 0)
            return np.asarray(weights / weights.sum())
        for name in stage.weights:
            if name not in self.names:
                raise unknown("corpus of --data-weights", name, self.names)
            if stage.weights[name] and not self._sizes[self.names.index(name)]:
                raise UserError(f"--data-weights {quoted(name)}: nmt prepare kept no pairs of this corpus (drop it)")
        weights = np.array([stage.weights.get(name, 0.0) for name in self.names])
        weights /= weights.max()  # the sum of large weights could overflow
        return np.asarray(weights / weights.sum())

    def lines(self) -> list[str]:
        """The shares of each stage as text."""
        lines = []
        for stage, shares in zip(self.stages, self.shares, strict=True):
            named = ", ".join(f"{name} {share:.4g}" for name, share in zip(self.names, 100 * shares, strict=True))
            update, epoch = (f"{end:,}" if end else "" for end in (stage.updates, stage.epochs))
            end = (
                f"until update {update}" if update else f"until the end of epoch {epoch}" if epoch else "until the end"
            )
            lines.append(f"percentage of pairs {end}: {named}")
        return lines

    def part(self, start: PartStart | None, epoch: int) -> PartStart:
        """The part that starts at a position. If its stage has ended, the part moves to a later stage.

        start: None for the first part
        Raises ArtefactError if the position belongs to different data.
        """
        start = start or self.first_part()
        drawn = map(sum, zip(start.earlier, start.drawn, strict=False))
        if start.pairs >= self.size or max(drawn, default=0) > MAX_DRAWN:
            raise ArtefactError(
                "the saved position does not exist in this data (use the data that the run was trained on)"
            )
        if {len(start.earlier), len(start.drawn)} != {len(self.names)} or start.stage >= len(self.stages):
            raise ArtefactError(
                "the saved position does not match the corpora of this data (use the data that the run was trained on)"
            )
        stage = start.stage
        while stage < len(self.stages) - 1 and self.stages[stage].is_over(start.updates, epoch):
            stage += 1
        if stage == start.stage:
            return start
        earlier = tuple(map(sum, zip(start.earlier, start.drawn, strict=True)))
        return replace(start, stage=stage, earlier=earlier, drawn=(0,) * len(self.names))

    def updates_left(self, part: PartStart) -> int | None:
        """The number of updates from a part's start to the end of its stage; None if the stage does not end at an update."""
        last = self.stages[part.stage].updates
        return None if last is None else last - part.updates

    def draw(self, part: PartStart, count: int) -> Draws:
        """The first `count` pairs of a part."""
        shares = self.shares[part.stage]
        used = np.flatnonzero(shares).tolist()
        max_pairs = [min(count, math.ceil(count * shares[corpus]) + len(used) + 1) for corpus in used]
        due = [
            (part.drawn[corpus] + np.arange(number) + 0.5) / shares[corpus]
            for corpus, number in zip(used, max_pairs, strict=True)
        ]
        order = np.argsort(np.concatenate(due), kind="stable")[:count]
        corpora = np.repeat(used, max_pairs)[order]
        numbers = np.empty(count, dtype=np.int64)
        for corpus in used:
            own = np.flatnonzero(corpora == corpus)
            numbers[own] = self._of_corpus(corpus, part.earlier[corpus] + part.drawn[corpus] + np.arange(len(own)))
        return Draws(numbers, corpora)

    def _of_corpus(self, corpus: int, places: Indices) -> Indices:
        """The pairs at the given places in the endless sequence drawn from a corpus, numbered as in `Draws`."""
        passes, places = np.divmod(places, self._sizes[corpus])
        keys = hash_keys(self._seed, 0, PURPOSE, corpus, FEISTEL_ROUNDS)
        keys = mixed(passes.astype(np.uint64), keys[:, None])  # rounds N
        images = permuted(places, int(self._sizes[corpus]), keys)
        starts, lengths = self._ranges[corpus]
        ends = np.cumsum(lengths)
        part = np.searchsorted(ends, images, side="right")
        numbers: Indices = passes * self.size + (starts + lengths - ends)[part] + images
        return numbers

    def after(self, part: PartStart, draws: Draws, updates: int) -> PartStart:
        """The start of the next part. draws: all pairs of this part; updates: number of updates in this part"""
        counts = np.bincount(draws.corpora, minlength=len(self.names)).tolist()
        pairs = part.pairs + len(draws.numbers)
        drawn = tuple(map(sum, zip(part.drawn, counts, strict=True)))
        return PartStart(pairs % self.size, part.updates + updates, part.stage, part.earlier, drawn)

    def per_epoch(self, values: NDArray[np.integer]) -> float:
        """The expected sum of a value over an epoch of the last stage. values: (pairs of all corpora,) value of each pair"""
        sums = [
            sum(int(values[start : start + length].sum(dtype=np.int64)) for start, length in zip(*own, strict=True))
            for own in self._ranges
        ]
        return float(self.size * (self.shares[-1] * sums / np.maximum(self._sizes, 1)).sum())
