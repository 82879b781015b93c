"""The plan of batches: which pairs make up each update of an epoch, a pure function of (lengths, sizes, seed, epoch).

An epoch is planned in parts of a million pairs drawn from the whole corpus, one after the other, so that the first update
never waits for the plan of the last. The pairs of a part are sorted by length and cut into groups of nearly equal length;
the groups are shuffled, and each update is made of a few of them, so that little is padded and no update sees one length
only. The plan does not know of devices: how an update is cut into micro-batches changes no result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt.errors import ArtefactError

Indices = NDArray[np.int64]

GROUPS_PER_UPDATE: Final = 4
PART: Final = 1 << 20  # pairs that are planned at once: a thousand of the paper's updates
ROUNDS: Final = 4  # of the permutation; from three on it is a random one to who does not know its keys


@dataclass(frozen=True)
class Plan:
    """The updates of one part of an epoch.

    before: pairs of the parts before
    order: (N,) pair indices, in the order they are read
    groups: (G + 1,) offsets into order: pairs of nearly one length
    updates: (U + 1,) offsets into groups
    """

    before: int
    order: Indices
    groups: Indices
    updates: Indices

    def __len__(self) -> int:
        return len(self.updates) - 1

    def update(self, number: int) -> list[Indices]:
        """The groups of pair indices of update `number` of the part, counted from 0."""
        first, last = self.updates[number], self.updates[number + 1]
        return [self.order[self.groups[g] : self.groups[g + 1]] for g in range(first, last)]

    def pairs_before(self, number: int) -> int:
        """Pairs that the updates before `number` read."""
        return int(self.groups[self.updates[number]])

    def update_at(self, pairs: int) -> int:
        """The update that begins after `pairs` pairs of the part; ArtefactError if none does: it is not this data's."""
        starts = self.groups[self.updates]
        number = int(np.searchsorted(starts, pairs))
        if number == len(starts) or starts[number] != pairs:
            raise ArtefactError(
                f"the position of the data is not one of this data: no update begins after {self.before + pairs:,} pairs"
            )
        return number


def plan_part(
    source_lengths: NDArray[Any], target_lengths: NDArray[Any], batch_tokens: int, seed: int, epoch: int, part: int
) -> Plan:
    """The plan of a part of an epoch, counted from 0.

    source_lengths, target_lengths: (N,) of all pairs, in tokens without EOS; batch_tokens: target tokens with it
    """
    pairs = _pairs_of_part(len(target_lengths), seed, epoch, part)
    source, target = source_lengths[pairs], target_lengths[pairs]
    random = np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, 0, part]))
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
    return Plan(part * PART, pairs[order[pieces]], groups.astype(np.int64), updates.astype(np.int64))


def _pairs_of_part(size: int, seed: int, epoch: int, part: int) -> Indices:
    """The pairs of a part of an epoch over `size` pairs; all parts together hold each pair once."""
    positions = np.arange(part * PART, min((part + 1) * PART, size))
    if size <= PART:
        return positions
    keys = np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, 1, 0])).integers(
        1 << 63, size=ROUNDS, dtype=np.uint64
    )
    return permuted(positions, size, keys)


def permuted(positions: Indices, size: int, keys: NDArray[np.uint64]) -> Indices:
    """The images of positions under a permutation of range(size) that the keys choose, in memory of the positions alone.

    A Feistel network over the next power of 4; an image out of range is put through it again until it is in range, which
    is a permutation of range(size) too (Black and Rogaway, 2002, "cycle walking"). keys: one for each round
    """
    half = np.uint64((int(size - 1).bit_length() + 1) // 2)
    low = np.uint64((1 << int(half)) - 1)
    images = positions.astype(np.uint64)
    outside = np.arange(len(images))
    while len(outside):
        left, right = images[outside] >> half, images[outside] & low
        for key in keys:
            left, right = right, left ^ (_mixed(right, key) & low)
        images[outside] = (left << half) | right
        outside = outside[images[outside] >= size]
    return images.astype(np.int64)


def _mixed(numbers: NDArray[np.uint64], key: np.uint64) -> NDArray[np.uint64]:
    """Numbers with all their bits stirred (the finaliser of MurmurHash3, Appleby, 2011)."""
    mixed = numbers ^ key
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(33))


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
