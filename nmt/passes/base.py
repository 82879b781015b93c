"""The interface of passes.

A registered pass is built as `cls(options)` when one of its options is given. The options are those of the translator, which
are an instance of the options class of the pass too, which names a flag that the model's attention is read for in
`needs_attention`. Several passes lie around the search like shells.
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
    """How the translator inside a pass searches.

    models: the folders or runs as they were given
    search: its decoder, which takes phrases if a pass asked for that
    options, filter_texts: see Translator
    open: a further translator of the same models, with other options and another decoder
    """

    models: Sequence[str]
    search: Part
    options: TranslatorOptions
    filter_texts: Mapping[str, Sequence[str]]
    open: Callable[[TranslatorOptions, Part], Translator]


class Pass(ABC):
    """What changes texts before the search, and translations after it.

    order: the pass with the lowest order is closest to the search
    """

    order: ClassVar[int] = 0

    def __init__(self, options: Any) -> None:
        self.options = options

    def search(self, models: Sequence[str], part: Part) -> Part:
        """The decoder that the translator inside needs: the given one, or one that does more. Raises UserError."""
        return part

    def inner(self, options: TranslatorOptions) -> TranslatorOptions:
        """The options of the translator inside. options: what is given, the options of this pass at their defaults"""
        return options

    @abstractmethod
    def around(self, translator: Translator, searches: Searches) -> Translator:
        """A translator that changes texts and translations, and has another one to translate them."""
