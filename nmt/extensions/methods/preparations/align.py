"""Links between the tokens of the training pairs, learnt from these, as a column."""

from collections.abc import Iterator

from nmt import UserError, register
from nmt.extensions.methods.preparations.options import ALIGNMENT_COLUMN, AlignOptions
from nmt.extensions.methods.word_alignment import AlignmentModel
from nmt.preparations.base import PairIds, Preparation
from nmt.rows import Rows


@register("preparation", "align", AlignOptions)
class Align(Preparation):
    """The training pairs get a column of links between their tokens, learnt from these pairs."""

    def check(self, context: int) -> None:
        """See Preparation."""
        if context:
            raise UserError("--align and --context: a context has no links to its translation (leave one of them out)")

    def columns(self, pairs: PairIds, sizes: tuple[int, int]) -> dict[str, tuple[str, Iterator[Rows]]]:
        """See Preparation."""
        return {ALIGNMENT_COLUMN: ("links", AlignmentModel(pairs, sizes).links())}
