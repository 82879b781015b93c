"""Columns with one number per target word, such as its importance."""

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nmt import register
from nmt.columns.base import FLOAT, ColumnItems, ColumnKind, padded_rows
from nmt.extensions.methods.columns.words import SideWords
from nmt.options import NoOptions
from nmt.rows import Rows
from nmt.text.vocabulary import expand_ranges

if TYPE_CHECKING:
    from torch import Tensor


@register("column", "target", NoOptions)
class TargetColumn(ColumnKind):
    """One weight per target word; in a batch, (B, T) float32 for the tokens of `target_output`, padded with 0."""

    sides: ClassVar[tuple[int, ...]] = (1,)
    are_weights: ClassVar[bool] = True

    def read(self, items: ColumnItems) -> Rows:
        """The value of each target token, taken from its word, and the value of EOS.

        EOS gets the line's additional number if there is one; otherwise 0 if all words have 0, else 1.
        """
        sentences = items.sentences
        words = SideWords(items, 1)
        more = items.counts - words.num_words
        for i in np.flatnonzero(sentences.good & (more != 0) & (more != 1)).tolist():
            count = words.num_words[i]
            expected = (
                f"{count}, one per target word (separated by spaces or tabs), or {count + 1}, with one more for the end of the "
                "line"
            )
            raise items.error(i, f"{items.counts[i]} numbers; expected {expected}")
        numbers, ends = items.numbers(self.are_weights), np.cumsum(words.num_tokens + 1)
        values = np.ones(int(ends[-1]), FLOAT)
        of_end = (np.cumsum(items.counts) - 1)[more == 1]  # items that belong to EOS
        values[ends[more == 1] - 1] = numbers[of_end]
        numbers = np.delete(numbers, of_end)
        good = np.flatnonzero(np.repeat(sentences.good, words.num_words))
        pair_of_word = np.repeat(np.arange(len(more)), words.num_words)[good]
        counting = np.bincount(pair_of_word, numbers != 0, len(more))  # number of words with a nonzero value
        values[ends[(more == 0) & (words.num_words > 0) & (counting == 0)] - 1] = 0
        for j in np.flatnonzero(words.joined[good][1:] & (numbers[1:] != numbers[:-1])).tolist():
            pair = int(np.searchsorted(np.cumsum(words.num_words), good[j + 1], "right"))
            message = (
                f"two words that the text pipeline joins have different numbers, {numbers[j]:g} and {numbers[j + 1]:g}"
            )
            raise items.error(pair, message)
        starts = words.starts + np.repeat(ends - words.num_tokens - 1, words.num_words)
        values[expand_ranges(starts[good], words.tokens[good])] = np.repeat(numbers, words.tokens[good])
        return Rows(values, (words.num_tokens + 1).astype(np.uint32))

    def counts(self, lengths: NDArray[Any]) -> NDArray[Any]:
        """See ColumnKind."""
        counts: NDArray[Any] = lengths[..., 1] + 1  # EOS
        return counts

    def of_batch(self, rows: Rows) -> NDArray[Any]:
        """See ColumnKind."""
        return padded_rows(rows, self.filler, np.float32)

    def ones(self, num_pairs: int, target_length: int) -> Rows:
        """See ColumnKind."""
        return Rows(np.ones(num_pairs * target_length, np.float32), np.full(num_pairs, target_length))

    def positions(self, source: int, target: int) -> int:
        """See ColumnKind."""
        return target

    def narrowed(self, values: "Tensor", target: int) -> "Tensor":
        """See ColumnKind."""
        return values[:, :target]
