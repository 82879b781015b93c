"""Columns that hold links between the words of a pair, in Pharaoh format: `0-0 2-1`."""

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from nmt import register
from nmt.columns.base import ColumnItems, ColumnKind, padded_rows
from nmt.errors import quoted
from nmt.extensions.methods.columns.words import SideWords
from nmt.options import NoOptions
from nmt.rows import Rows
from nmt.text.vocabulary import expand_ranges

if TYPE_CHECKING:
    from torch import Tensor

NO_LINK: Final = -1  # pads links, because 0 is a valid position
LINK: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


@register("column", "links", NoOptions)
class LinksColumn(ColumnKind):
    """Links between words. In a batch, these are positions in `source` and `target_output`: (B, L, 2) int64, padded with -1."""

    number: ClassVar[np.dtype[Any]] = np.dtype("<u4")
    width: ClassVar[int] = 2
    bounds: ClassVar[tuple[float, float]] = (0, (1 << 32) - 1)
    sides: ClassVar[tuple[int, ...]] = (0, 1)
    filler: ClassVar[int] = NO_LINK
    stores_counts: ClassVar[bool] = True

    def read(self, items: ColumnItems) -> Rows:
        """Return (L, 2) links between all tokens of linked words. K links between words become L links between tokens."""
        pairs = items.pairs
        source, target = SideWords(items, 0), SideWords(items, 1)
        matches = [LINK.fullmatch(item) for item in items.items]
        links = np.array([match.groups() if match else (-1, -1) for match in matches], np.int64).reshape(-1, 2)  # K 2
        limits = np.stack([source.num_words[pairs], target.num_words[pairs]], axis=1)  # K 2
        for i in np.flatnonzero(((links < 0) | (links >= limits)).any(axis=1)).tolist():
            pair = int(pairs[i])
            raise items.error(
                pair,
                f"'{quoted(items.items[i])}': must be SOURCE-TARGET with words counted from 0; the pair has "
                f"{source.num_words[pair]} source words and {target.num_words[pair]} target words (separated by spaces or tabs)",
            )
        # Number the words of all pairs, so that duplicate links of a pair are removed and the order is kept.
        size = max(1, len(target.tokens))
        keys = np.unique((source.offsets[pairs] + links[:, 0]) * size + target.offsets[pairs] + links[:, 1])  # K
        one, other = keys // size, keys % size  # K, K: source and target words
        widths = target.tokens[other]  # K
        counts = source.tokens[one] * widths  # K: tokens of one word times tokens of the other
        step = expand_ranges(np.zeros_like(counts), counts)  # L: 0, 1, ... within each link between words
        widths = np.repeat(widths, counts)  # L
        first = np.stack(
            [np.repeat(source.starts[one], counts), np.repeat(target.starts[other], counts)], axis=1
        )  # L 2
        values = first + np.stack([step // widths, step % widths], axis=1)  # L 2
        pair_of_word = np.repeat(np.arange(len(items.counts)), source.num_words)  # pair of each source word
        pair_of_link = np.repeat(pair_of_word[one], counts)  # L
        if source.joined.any() or target.joined.any():  # words that share tokens yield duplicate links
            unique = np.unique(np.column_stack([pair_of_link, values]), axis=0)
            pair_of_link, values = unique[:, 0], unique[:, 1:]
        lengths = np.bincount(pair_of_link, minlength=len(items.counts))  # N
        return Rows(values.astype(self.number), lengths.astype(np.uint32))

    def fits(self, rows: Rows, lengths: NDArray[Any]) -> bool:
        """See ColumnKind."""
        return bool((rows.values < np.repeat(lengths, rows.lengths, axis=0)).all())

    def of_batch(self, rows: Rows) -> NDArray[Any]:
        """See ColumnKind."""
        return padded_rows(rows, self.filler, np.int64)

    def ones(self, num_pairs: int, target_length: int) -> Rows:
        """One link between the first tokens of each pair."""
        return Rows(np.zeros((num_pairs, 2), np.int64), np.ones(num_pairs, np.int64))

    def positions(self, source: int, target: int) -> int:
        """See ColumnKind."""
        return source + target

    def narrowed(self, values: "Tensor", target: int) -> "Tensor":
        """See ColumnKind."""
        return values[:, : int((values[:, :, 0] != NO_LINK).sum(1).max())]
