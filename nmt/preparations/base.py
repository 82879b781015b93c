"""Preparations: changes to the data that `nmt prepare` writes, such as more vocabulary entries or a learnt column.

A preparation is active if one of its options differs from its default, or if its options class says so through `is_active`. Its
options are options of `nmt prepare`. If they can add vocabulary entries, the class names them in `adds_entries`, which is
shown in messages about words that a vocabulary lacks.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray

from nmt.rows import Rows
from nmt.text.pipeline import Pipeline

CountWords = Callable[[Mapping[int, Callable[[Sequence[str]], list[str]]]], Counter[str]]
"""Maps text steps of the source (0), the target (1) or both to counts of the words in the training text after these steps."""


@dataclass(frozen=True)
class PairIds:
    """The ids of all training pairs.

    lengths: (N, 2) tokens of source and target; source, target: ids of all pairs, concatenated
    target_reversed: whether targets are stored from right to left
    """

    lengths: NDArray[Any]
    source: NDArray[Any]
    target: NDArray[Any]
    target_reversed: bool = False


class Preparation:
    """Changes the data being prepared. A registered preparation is built as `cls(options)`, with the options of `nmt prepare`.

    order: the preparation with the lowest order is applied first
    """

    order: ClassVar[int] = 0

    def __init__(self, options: Any) -> None:
        self.options = options

    def change(self, pipeline: Pipeline, count_words: CountWords) -> Pipeline:
        """Change the text pipeline. pipeline: the learnt one, or the one from --vocabulary"""
        return pipeline

    def check(self, context: int) -> None:
        """Raise UserError if the preparation cannot be combined with a context. context: maximum number of previous sentences"""

    def columns(self, pairs: PairIds, sizes: tuple[int, int]) -> Mapping[str, tuple[str, Iterator[Rows]]]:
        """Further columns for the training pairs, by name: each column's kind, and its values for all pairs.

        sizes: number of entries of the source and the target vocabulary
        """
        return {}
