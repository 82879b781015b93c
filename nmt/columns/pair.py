"""Columns with one weight per pair."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nmt import register
from nmt.columns.base import FLOAT, ColumnItems, ColumnKind
from nmt.options import NoOptions
from nmt.rows import Rows


@register("column", "pair", NoOptions)
class PairColumn(ColumnKind):
    """One weight per pair: (B,) float32 in a batch."""

    are_weights: ClassVar[bool] = True

    def read(self, items: ColumnItems) -> Rows:
        """See ColumnKind."""
        for i in np.flatnonzero(items.sentences.good & (items.counts != 1)).tolist():
            raise items.error(i, f"{items.counts[i]} numbers, but a pair needs exactly 1")
        values = np.ones(len(items.counts), FLOAT)
        values[items.pairs] = items.numbers(self.are_weights)
        return Rows(values, np.ones(len(values), np.uint32))

    def counts(self, lengths: NDArray[Any]) -> NDArray[Any]:
        """See ColumnKind."""
        return np.ones(lengths.shape[:-1], np.uint32)

    def of_batch(self, rows: Rows) -> NDArray[Any]:
        """See ColumnKind."""
        return rows.values.astype(np.float32)

    def ones(self, num_pairs: int, target_length: int) -> Rows:
        """See ColumnKind."""
        return Rows(np.ones(num_pairs, np.float32), np.ones(num_pairs, np.int64))
