"""Adds a column of alignment links between the tokens of each training pair, learned from the pairs themselves."""

from collections.abc import Iterator

from nmt import UserError, register
from nmt.extensions.methods.preparations.options import ALIGNMENT_COLUMN, AlignOptions
from nmt.extensions.methods.word_alignment import AlignmentModel
from nmt.preparations.base import PairIds, Preparation
from nmt.rows import Rows


@register("preparation", "align", AlignOptions)
class Align(Preparation):
    """Adds a column of alignment links between the tokens of each training pair, learned from the pairs themselves."""

    def check(self, context: int) -> None:
        """See Preparation."""
        if context:
            raise UserError(
                "--align and --context cannot be combined: context lines have no alignment links (drop one of them)"
            )

    def columns(self, pairs: PairIds, sizes: tuple[int, int]) -> dict[str, tuple[str, Iterator[Rows]]]:
        """See Preparation."""
        return {ALIGNMENT_COLUMN: ("links", AlignmentModel(pairs, sizes).links())}
