"""Preparations: changes to the data that `nmt prepare` makes, such as more vocabulary entries or a learnt column.

A preparation is active when one of its options differs from its default, or when the `is_active` of its options class says
so. Its options are options of `nmt prepare`. An options class by which a vocabulary gets entries names them in its
`adds_entries`, for messages about words that a vocabulary lacks.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray

from nmt.rows import Rows
from nmt.text.pipeline import Pipeline

CountWords = Callable[[Mapping[int, Callable[[Sequence[str]], list[str]]]], Counter[str]]
"""Text steps of the source (0), the target (1) or both -> counts of the words of the training text after these steps."""


@dataclass(frozen=True)
class PairIds:
    """The ids of all training pairs. lengths: (N, 2); source, target: ids, one pair after the other

    target_reversed: whether targets are stored from right to left
    """

    lengths: NDArray[Any]
    source: NDArray[Any]
    target: NDArray[Any]
    target_reversed: bool = False


class Preparation:
    """A change to prepared data. A registered preparation is built as `cls(options)`, with the options of `nmt prepare`.

    order: the preparation with the lowest order comes first
    """

    order: ClassVar[int] = 0

    def __init__(self, options: Any) -> None:
        self.options = options

    def change(self, pipeline: Pipeline, count_words: CountWords) -> Pipeline:
        """The text pipeline to prepare with. pipeline: the learnt one, or that of --vocabulary"""
        return pipeline

    def check(self, context: int) -> None:
        """Raise UserError if it cannot be combined with a context. context: the most sentences before a source line"""

    def columns(self, pairs: PairIds, sizes: tuple[int, int]) -> Mapping[str, tuple[str, Iterator[Rows]]]:
        """Further columns of the training pairs by name: the kind of each, and the values of all pairs.

        sizes: entries of the source and the target vocabulary
        """
        return {}
