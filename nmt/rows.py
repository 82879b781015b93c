"""Values of pairs (tokens or column values) as flat arrays, one pair after the other."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.text.vocabulary import backwards, expand_ranges


class Rows(NamedTuple):
    """Values of some pairs, one pair after the other. values: (sum of lengths, ...); lengths: (N,) number of values per pair"""

    values: NDArray[Any]
    lengths: NDArray[Any]

    def keep(self, kept: NDArray[np.bool_]) -> "Rows":
        """The rows of the pairs that are kept. kept: (N,)"""
        return Rows(self.values[np.repeat(kept, self.lengths)], self.lengths[kept])

    def take(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The values of rows (N,), one after the other."""
        starts = np.cumsum(self.lengths) - self.lengths
        values: NDArray[Any] = self.values[expand_ranges(starts[rows], self.lengths[rows])]
        return values

    def backwards(self) -> "Rows":
        """The same rows, with the values of each pair in reverse order."""
        return Rows(self.values[backwards(self.lengths)], self.lengths)
