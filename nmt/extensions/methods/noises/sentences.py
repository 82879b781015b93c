"""Functions shared by all kinds of noise that change the tokens of sentences."""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.columns.base import column_kind
from nmt.errors import UserError
from nmt.noises.base import NoiseContext
from nmt.rows import Rows

Change = Callable[[Rows, NDArray[np.uint64], int], Rows]


def in_order_of_text(rows: Rows, is_backwards: bool, change: Change, keys: NDArray[Any], longest: int) -> Rows:
    """Apply a change that expects sentences in text order.

    rows: sentences in the order of the model, which is right to left if `is_backwards`
    keys, longest: arguments of the change
    """
    return change(rows.backwards(), keys, longest).backwards() if is_backwards else change(rows, keys, longest)


def refuse_columns(context: NoiseContext, sides: Collection[int], flag: str) -> None:
    """Raise UserError if a column has values for the tokens of a side that the noise changes. flag: the noise's option"""
    for name, kind in context.column_kinds.items():
        if not {*sides}.isdisjoint(column_kind(kind).sides):
            raise UserError(
                f"{flag} and the column '{name}' cannot be combined: the column needs fixed word splits (drop one of them)"
            )


def word_starts(
    ids: NDArray[Any], lengths: NDArray[np.int64], begins_word: NDArray[np.bool_], ends_word: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return the position (W,) of each word's first token in N texts. No word continues into the next text.

    ids: tokens of all texts in text order; lengths: (N,) number of tokens in each text
    begins_word, ends_word: (V,) whether a token starts or ends a word
    """
    begins = begins_word[ids]
    begins[1:] |= ends_word[ids[:-1]]
    begins[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
    return np.flatnonzero(begins)
