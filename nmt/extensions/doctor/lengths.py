"""Histograms of the sentence lengths in a corpus, and the correlation between the lengths of the two sides."""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt.data.row_files import SIDES
from nmt.data.sets import zero_counts

MAX_COUNTED_LENGTH: Final = 1024  # longer lines are counted together
NUM_BARS: Final = 16  # approximate number of bars in a histogram
BAR_WIDTHS: Final = (1, 2, 5, 10, 20, 50, 100)
EQUAL_BARS_SHARE: Final = 0.99  # share of lines shown in bars of equal width; longer lines form one more bar
# Ratios of target to source length, from 1/4 to 4 in steps of 2 ** (1/4).
RATIO_EDGES: Final = 2.0 ** (np.arange(-8, 9) / 4)

HistogramRows = list[tuple[str, int]]  # label, count


@dataclass
class LengthHistograms:
    """Counts of pairs by length and by ratio.

    counts: (2, MAX_COUNTED_LENGTH + 2) number of source and target lines by length; the last column counts longer lines
    ratios: (R + 2,) number of pairs by target / source length: below the first of R edges, ..., above the last edge, and
        pairs with an empty side
    sums: (6,) sums over the pairs with s > 0 and t > 0 characters: 1, s, t, s * s, t * t, s * t
    """

    counts: NDArray[np.int64] = zero_counts(2, MAX_COUNTED_LENGTH + 2)
    ratios: NDArray[np.int64] = zero_counts(len(RATIO_EDGES) + 2)
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(6))

    def add(self, lengths: NDArray[Any], characters: NDArray[Any]) -> None:
        """Count pairs. lengths, characters: (N, 2) tokens or words, and characters, of source and target"""
        capped = np.minimum(lengths, MAX_COUNTED_LENGTH + 1)
        for side in (0, 1):
            self.counts[side] += np.bincount(capped[:, side], minlength=MAX_COUNTED_LENGTH + 2)
        full = lengths.min(axis=1, initial=1) > 0
        bins = np.searchsorted(RATIO_EDGES, lengths[full, 1] / lengths[full, 0], side="right")
        self.ratios[:-1] += np.bincount(bins, minlength=len(RATIO_EDGES) + 1)
        self.ratios[-1] += int((~full).sum())
        s, t = characters[full].T.astype(np.float64)
        self.sums += [len(s), s.sum(), t.sum(), s @ s, t @ t, s @ t]

    def merge(self, other: "LengthHistograms") -> None:
        self.counts += other.counts
        self.ratios += other.ratios
        self.sums += other.sums

    @property
    def correlation(self) -> float | None:
        """Pearson's correlation between the lengths of the two sides in characters; None if all lengths on one side are equal."""
        n, s, t, ss, tt, st = self.sums.tolist()
        spread = (n * ss - s * s) * (n * tt - t * t)
        return (n * st - s * t) / math.sqrt(spread) if n and spread > 1e-9 * n * ss * n * tt else None

    def rows(self) -> dict[str, HistogramRows]:
        """The histograms by name: the lines of each side by length, and the pairs by ratio of target to source length."""
        edges = [f"{edge:.2f}" for edge in RATIO_EDGES]
        inner = [f"{low}-{high}" for low, high in pairwise(edges)]
        labels = [f"below {edges[0]}", *inner, f"{edges[-1]} and more", "one side empty"]
        sides = zip(SIDES, map(_length_rows, self.counts), strict=True)
        return dict([*sides, ("ratio", list(zip(labels, self.ratios.tolist(), strict=True)))])


def _length_rows(counts: NDArray[np.int64]) -> HistogramRows:
    """The number of lines by length: a bar for 0, bars of equal width such as "1-5", and one bar for the longest lines."""
    total = int(counts.sum())
    typical = int(np.searchsorted(np.cumsum(counts), EQUAL_BARS_SHARE * total))
    width = next((width for width in BAR_WIDTHS if typical <= NUM_BARS * width), BAR_WIDTHS[-1])
    rows = [("0", int(counts[0]))]
    start = 1
    while start <= min(typical, MAX_COUNTED_LENGTH):
        end = min(start + width - 1, MAX_COUNTED_LENGTH)
        rows.append((str(start) if width == 1 else f"{start}-{end}", int(counts[start : end + 1].sum())))
        start = end + 1
    return [*rows, (f"{start} and more", int(counts[start:].sum()))]
