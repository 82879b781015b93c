"""Lengths of the pairs of a corpus: histograms of both sides and of their ratio, and how well the two go together."""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LONGEST: Final = 1024  # lengths above are counted together
BARS: Final = 16  # of a drawn histogram, about
WIDTHS: Final = (1, 2, 5, 10, 20, 50, 100)
SHOWN_SHARE: Final = 0.99  # of the lines that the bars of equal width cover; one bar has the rest
# Target by source length: quarters of an octave from a quarter to four times. A pair with an empty side has no ratio.
RATIO_EDGES: Final = 2.0 ** (np.arange(-8, 9) / 4)

Rows = list[tuple[str, int]]


@dataclass
class Lengths:
    """Counts over pairs.

    counts: (2, LONGEST + 2) lines of each length, source and target, the last those above LONGEST
    ratios: (R + 2,) pairs by target / source length: below the first of R edges ... above the last, and one side empty
    sums: (6,) number, and sums of s, t, s*s, t*t and s*t over pairs without an empty side, s and t their characters
    """

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, LONGEST + 2), dtype=np.int64))
    ratios: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(RATIO_EDGES) + 2, dtype=np.int64))
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(6))

    def add(self, lengths: NDArray[Any], characters: NDArray[Any]) -> None:
        """lengths, characters: (N, 2) of the source and the target of each pair."""
        capped = np.minimum(lengths, LONGEST + 1)
        for side in (0, 1):
            self.counts[side] += np.bincount(capped[:, side], minlength=LONGEST + 2)
        full = lengths.min(axis=1, initial=1) > 0
        ratios = np.searchsorted(RATIO_EDGES, lengths[full, 1] / lengths[full, 0], side="right")
        self.ratios[:-1] += np.bincount(ratios, minlength=len(RATIO_EDGES) + 1)
        self.ratios[-1] += int((~full).sum())
        s, t = characters[full].T.astype(np.float64)
        self.sums += [len(s), s.sum(), t.sum(), s @ s, t @ t, s @ t]

    def merge(self, other: "Lengths") -> None:
        self.counts += other.counts
        self.ratios += other.ratios
        self.sums += other.sums

    @property
    def correlation(self) -> float | None:
        """Pearson's, of the characters of both sides; None where one side has always the same length."""
        n, s, t, ss, tt, st = self.sums.tolist()
        spread = (n * ss - s * s) * (n * tt - t * t)
        return (n * st - s * t) / math.sqrt(spread) if n and spread > 1e-9 * n * ss * n * tt else None

    def side_rows(self, side: int) -> Rows:
        """Lines of a side by length, in bars of equal width and one for the longer: ("1-5", count); 0 has its own."""
        counts = self.counts[side]
        total = int(counts.sum())
        typical = int(np.searchsorted(np.cumsum(counts), SHOWN_SHARE * total))
        width = next((width for width in WIDTHS if typical <= BARS * width), WIDTHS[-1])
        rows = [("0", int(counts[0]))]
        start = 1
        while start <= min(typical, LONGEST):
            end = min(start + width - 1, LONGEST)
            rows.append((str(start) if width == 1 else f"{start}-{end}", int(counts[start : end + 1].sum())))
            start = end + 1
        return [*rows, (f"{start} and more", int(counts[start:].sum()))]

    def ratio_rows(self) -> Rows:
        """Pairs by the ratio of target to source length."""
        edges = [f"{edge:.2f}" for edge in RATIO_EDGES]
        inner = [f"{low}-{high}" for low, high in pairwise(edges)]
        labels = [f"below {edges[0]}", *inner, f"{edges[-1]} and more", "one side empty"]
        return list(zip(labels, self.ratios.tolist(), strict=True))
