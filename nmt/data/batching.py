"""The plan of batches: which pairs make up each update of an epoch, a pure function of (lengths, sizes, seed, epoch).

Pairs are sorted by length and cut into groups of nearly equal length; the groups are shuffled, and each update is made
of a few of them, so that little is padded and no update sees one length only. The plan does not know of devices: how
an update is cut into micro-batches changes no result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

GROUPS_PER_UPDATE: Final = 4


@dataclass(frozen=True)
class Plan:
    """The updates of one epoch.

    order: (N,) pair indices, in the order they are read
    groups: (G + 1,) offsets into order: pairs of nearly one length
    updates: (U + 1,) offsets into groups
    """

    order: Indices
    groups: Indices
    updates: Indices

    def __len__(self) -> int:
        return len(self.updates) - 1

    def update(self, number: int) -> list[Indices]:
        """The groups of pair indices of update `number` of the epoch, counted from 0."""
        first, last = self.updates[number], self.updates[number + 1]
        return [self.order[self.groups[g] : self.groups[g + 1]] for g in range(first, last)]

    def pairs_before(self, number: int) -> int:
        """Pairs that the updates before `number` read."""
        return int(self.groups[self.updates[number]])

    def update_at(self, pairs: int) -> int:
        """The update that begins after `pairs` pairs; ValueError if none begins there."""
        starts = self.groups[self.updates]
        number = int(np.searchsorted(starts, pairs))
        if number == len(starts) or starts[number] != pairs:
            raise ValueError(f"no update of this epoch begins after {pairs} pairs")
        return number


def plan_epoch(source_lengths: Any, target_lengths: Any, batch_tokens: int, seed: int, epoch: int) -> Plan:
    """The plan of an epoch. Lengths count tokens without EOS; batch_tokens counts target tokens with it."""
    source, target = np.asarray(source_lengths), np.asarray(target_lengths)
    random = np.random.Generator(np.random.Philox(key=[seed, epoch]))
    order = np.lexsort((random.permutation(len(target)), source, target))
    tokens = np.cumsum(target[order].astype(np.int64) + 1)
    group_tokens = max(1, batch_tokens // GROUPS_PER_UPDATE)
    group_of = (tokens - 1) // group_tokens  # (N,) the group that a pair's last token falls in
    starts = np.flatnonzero(np.diff(group_of, prepend=-1))
    sizes = np.diff(starts, append=len(order))
    shuffled = random.permutation(len(starts))
    pieces = np.repeat(starts[shuffled] - _before(sizes[shuffled]), sizes[shuffled]) + np.arange(len(order))
    groups = np.concatenate([[0], np.cumsum(sizes[shuffled])])
    updates = np.append(np.arange(0, len(starts), GROUPS_PER_UPDATE), len(starts))
    return Plan(order[pieces], groups.astype(np.int64), updates.astype(np.int64))


def _before(sizes: Indices) -> Indices:
    """The sum of the sizes before each."""
    return np.cumsum(sizes) - sizes


def micro_batches(
    groups: list[Indices], source_lengths: Any, target_lengths: Any, max_tokens: int
) -> Iterator[Indices]:
    """Cut an update's groups so that rows times the longer side, padding counted, is at most max_tokens.

    A single pair that is longer than that makes a batch of its own.
    """
    for group in groups:
        longest = np.maximum(source_lengths[group], target_lengths[group]) + 1
        start = width = 0
        for i, length in enumerate(longest):
            width = max(width, int(length))
            if i > start and width * (i + 1 - start) > max_tokens:
                yield group[start:i]
                start, width = i, int(length)
        yield group[start:]
