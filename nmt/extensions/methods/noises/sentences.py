"""What noises that change the tokens of sentences share."""

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
    """Sentences after a change that reads them in the order of their text.

    rows: in the order of the model, which is from right to left if `is_backwards`
    keys, longest: of the change
    """
    return change(rows.backwards(), keys, longest).backwards() if is_backwards else change(rows, keys, longest)


def refuse_columns(context: NoiseContext, sides: Collection[int], flag: str) -> None:
    """Raise UserError for a column whose values belong to tokens of sides that the noise of a flag changes."""
    for name, kind in context.column_kinds.items():
        if not {*sides}.isdisjoint(column_kind(kind).sides):
            raise UserError(
                f"{flag}: column '{name}' belongs to the tokens of one way to cut the words (leave one of them out)"
            )


def word_starts(
    ids: NDArray[Any], lengths: NDArray[np.int64], begins_word: NDArray[np.bool_], ends_word: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """(W,) the position of the first token of each word of N texts. No word continues into the next text.

    ids: of all texts, in reading order; lengths: (N,) of each
    begins_word, ends_word: (V,) whether a token begins a word, or ends one
    """
    begins = begins_word[ids]
    begins[1:] |= ends_word[ids[:-1]]
    begins[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
    return np.flatnonzero(begins)
