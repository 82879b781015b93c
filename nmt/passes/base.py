"""The interface for passes, which change texts before the search and translations after it.

A registered pass is built as `cls(options)` if one of its options is set. `options` is the translator's options object,
also an instance of the pass's options class. If one of its flags needs the model's attention, the class names that flag in
`needs_attention`. Several passes are nested around the search.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nmt.options import Part
from nmt.translate.options import TranslatorOptions
from nmt.translate.translator import Translator


@dataclass(frozen=True)
class Searches:
    """How the inner translator of a pass searches.

    models: model folders or runs, as the user named them
    search: decoder, which accepts phrases if a pass requires that
    options, filter_texts: see Translator
    open: opens another translator for the same models, with other options and another decoder
    """

    models: Sequence[str]
    search: Part
    options: TranslatorOptions
    filter_texts: Mapping[str, Sequence[str]]
    open: Callable[[TranslatorOptions, Part], Translator]


class Pass(ABC):
    """Changes texts before the search, and translations after it.

    order: the pass with the lowest order is closest to the search
    """

    order: ClassVar[int] = 0

    def __init__(self, options: Any) -> None:
        self.options = options

    def search(self, models: Sequence[str], part: Part) -> Part:
        """The decoder for the inner translator: `part`, or a more capable one. Raises UserError if there is none."""
        return part

    def inner(self, options: TranslatorOptions) -> TranslatorOptions:
        """The options for the inner translator. options: the current ones, with those of this pass reset to their defaults"""
        return options

    @abstractmethod
    def around(self, translator: Translator, searches: Searches) -> Translator:
        """Wrap a translator in one that changes texts before it and translations after it."""
