"""Batch planning: the pairs of each update in an epoch, as a pure function of (lengths, sizes, seed, epoch).

An epoch is planned in parts of a million pairs drawn from the whole corpus, one part after the other, so that the first update
does not wait for the last part's plan. The pairs of a part are sorted by length and divided into groups of similar length. The
groups are shuffled, and each update consists of a few groups. This keeps padding low, but still mixes lengths in every update.
The plan does not depend on devices, and the division of an update into micro-batches does not affect results.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt.errors import ArtefactError
from nmt.text.vocabulary import expand_ranges

Indices = NDArray[np.int64]

GROUPS_PER_UPDATE: Final = 4
PART_PAIRS: Final = 1 << 20  # pairs planned at once, enough for a thousand updates of the paper's size
PADDING_TO_JOIN: Final = {"cpu": 32, "cuda": 2048}  # number of padding cells that cost less than another micro-batch
FEISTEL_ROUNDS: Final = 4  # with three or more rounds, the permutation is pseudorandom (Luby and Rackoff, 1988)


@dataclass
class PartPlan:
    """The updates of one part of an epoch.

    start: number of pairs in previous parts
    order: (N,) pair indices in reading order; each repetition of a pair adds the total number of pairs to its index
    groups: (G + 1,) offsets into `order`, which delimit groups of similar length
    updates: (U + 1,) offsets into `groups`
    place, next_place: state at the start of this part and of the next, for plans that need it (nmt.data.plan.Position)
    """

    start: int
    order: Indices
    groups: Indices
    updates: Indices
    place: Mapping[str, Any] | None = None
    next_place: Mapping[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.updates) - 1

    def update(self, number: int) -> list[Indices]:
        """The groups of pair indices in update `number` of the part, counted from 0."""
        first, last = self.updates[number], self.updates[number + 1]
        return [self.order[self.groups[g] : self.groups[g + 1]] for g in range(first, last)]

    def num_pairs(self, updates: int) -> int:
        """The number of pairs in the first `updates` updates of the part."""
        return int(self.groups[self.updates[updates]])

    def update_at(self, pairs: int) -> int:
        """The update that starts after `pairs` pairs of the part. Raises ArtefactError if there is none."""
        starts = self.groups[self.updates]
        number = int(np.searchsorted(starts, pairs))
        if number == len(starts) or starts[number] != pairs:
            raise ArtefactError(
                f"the run's position does not match this data: no update starts after {self.start + pairs:,} pairs (use the "
                "data the run was trained on)"
            )
        return number


def plan_part(
    source_lengths: NDArray[Any], target_lengths: NDArray[Any], batch_tokens: int, seed: int, epoch: int, part: int
) -> PartPlan:
    """Plan a part of an epoch.

    source_lengths, target_lengths: (N,) tokens of all pairs, without EOS
    batch_tokens: target tokens per update, including EOS
    epoch: counted from 1; part: counted from 0
    """
    pairs = _pairs_of_part(len(target_lengths), seed, epoch, part)
    random = np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, 0, part]))
    start = part * PART_PAIRS
    return plan_pairs(start, pairs, source_lengths[pairs], target_lengths[pairs], batch_tokens, random)


def plan_pairs(
    start: int,
    pairs: Indices,
    source: NDArray[Any],
    target: NDArray[Any],
    batch_tokens: int,
    random: np.random.Generator,
) -> PartPlan:
    """Plan some pairs.

    start: number of earlier pairs in the epoch; pairs: (N,) pair indices
    source, target: (N,) tokens of these pairs, without EOS; batch_tokens: see `plan_part`
    """
    order = np.lexsort((random.permutation(len(target)), source, target))
    tokens = np.cumsum(target[order].astype(np.int64) + 1)
    group_of = (tokens - 1) // tokens_of_group(batch_tokens)  # (N,) the group of each pair's last token
    starts = np.flatnonzero(np.diff(group_of, prepend=-1))
    sizes = np.diff(starts, append=len(order))
    shuffled = random.permutation(len(starts))
    groups = np.concatenate([[0], np.cumsum(sizes[shuffled])])
    updates = np.append(np.arange(0, len(starts), GROUPS_PER_UPDATE), len(starts))
    return PartPlan(
        start,
        pairs[order[expand_ranges(starts[shuffled], sizes[shuffled])]],
        groups.astype(np.int64),
        updates.astype(np.int64),
    )


def tokens_of_group(batch_tokens: int) -> int:
    """Target tokens per group, including EOS. A pair with more tokens forms its own group."""
    return max(1, batch_tokens // GROUPS_PER_UPDATE)


def _pairs_of_part(size: int, seed: int, epoch: int, part: int) -> Indices:
    """The pairs in a part of an epoch over `size` pairs. All parts together contain each pair once."""
    positions = np.arange(part * PART_PAIRS, min((part + 1) * PART_PAIRS, size))
    if size <= PART_PAIRS:
        return positions
    return permuted(positions, size, hash_keys(seed, epoch, 1, 0, FEISTEL_ROUNDS))


def hash_keys(seed: int, epoch: int, purpose: int, side: int, count: int) -> NDArray[np.uint64]:
    """(count,) keys for `mixed`, as a pure function of the other arguments.

    purpose: 1 permutes an epoch, 2 drops words, 3 samples subwords, 4 permutes a corpus in a mixture, 5 changes words
    """
    random = np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, purpose, side]))
    return random.integers(1 << 63, size=count, dtype=np.uint64)


def hashed(numbers: NDArray[np.integer[Any]], seed: int, epoch: int, purpose: int, side: int) -> NDArray[np.uint64]:
    """Hash numbers with two keys from `hash_keys`: (...) -> (...) uint64."""
    keys = hash_keys(seed, epoch, purpose, side, 2)
    return mixed(mixed(numbers.astype(np.uint64), keys[0]), keys[1])


def permuted(positions: Indices, size: int, keys: NDArray[np.uint64]) -> Indices:
    """Map positions by a pseudorandom permutation of range(size), without storing the whole permutation.

    Uses a Feistel network over the next power of 4. An image outside range(size) passes through the network again until it is
    inside. The result is also a permutation of range(size) (Black and Rogaway, 2002, "cycle walking").
    positions: (N,); keys: (rounds,) 64-bit keys, or (rounds, N) for a different permutation per position
    """
    half = np.uint64((int(size - 1).bit_length() + 1) // 2)
    low = np.uint64((1 << int(half)) - 1)
    images = positions.astype(np.uint64)
    outside = np.arange(len(images))
    while len(outside):
        left, right = images[outside] >> half, images[outside] & low
        for key in keys:
            left, right = right, left ^ (mixed(right, key if key.ndim == 0 else key[outside]) & low)
        images[outside] = (left << half) | right
        outside = outside[images[outside] >= size]
    return images.astype(np.int64)


def mixed(numbers: NDArray[np.uint64], key: np.uint64 | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash numbers with one key, or one key per number (the finaliser of MurmurHash3, Appleby, 2011)."""
    mixed = numbers ^ key
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(33))


def uniform(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Map hashes to numbers in [0, 1): (...) -> (...) float64."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def micro_batches(
    groups: list[Indices], source_lengths: Any, target_lengths: Any, max_tokens: int, device: str = "cpu"
) -> Iterator[Indices]:
    """Divide groups of pairs into micro-batches of at most max_tokens cells. Small groups of similar length are joined.

    The number of cells is the number of pairs times the length of their longest side, including EOS. A pair that is longer than
    max_tokens forms a separate batch.
    groups: of any size; empty ones are ignored
    device: type of the computing device
    """
    groups = [group for group in groups if len(group)]
    for group in _joined(groups, source_lengths, target_lengths, max_tokens, PADDING_TO_JOIN[device]):
        longest = np.maximum(source_lengths[group], target_lengths[group]) + 1
        start = width = 0
        for i, length in enumerate(longest):
            width = max(width, int(length))
            if i > start and width * (i + 1 - start) > max_tokens:
                yield group[start:i]
                start, width = i, int(length)
        yield group[start:]


def _joined(
    groups: list[Indices], source_lengths: Any, target_lengths: Any, max_tokens: int, padding: int
) -> list[Indices]:
    """Sort groups from short to long, and join neighbours if padding costs less than a separate micro-batch.

    groups: of at least one pair each; padding: maximum number of padding cells allowed when joining two groups
    """
    widths = [1 + int(np.maximum(source_lengths[group], target_lengths[group]).max()) for group in groups]
    joined: list[Indices] = []
    last_width = 0
    for width, group in sorted(zip(widths, groups, strict=True), key=lambda row: row[0]):
        rows = len(joined[-1]) if joined else 0
        fits = rows * (width - last_width) <= padding and (rows + len(group)) * width <= max_tokens
        if joined and fits:
            joined[-1] = np.concatenate([joined[-1], group])
        else:
            joined.append(group)
        last_width = width
    return joined
