"""Speedups of searches: faster ways to compute what the built-in search computes.

A speedup is active when one of its options differs from its default, or where the `is_active` of its options class says so.
Its options are options of `nmt translate`.
"""

from typing import Any, ClassVar

from torch import nn


class SearchSpeedup:
    """A faster way to compute a search. A registered speedup is built as `cls(options)`, with the options of a Translator.

    order: the speedup with the lowest order comes first
    """

    order: ClassVar[int] = 0

    def __init__(self, options: Any) -> None:
        self.options = options

    def begin(self, engine: Any, decoder: Any) -> None:
        """Change an engine (nmt.translate.own_engine.OwnEngine) that has loaded its models, before its first search.

        It may set `engine.products`, which multiply in every search, and for a Transformer `new_search`.
        decoder: the search
        Raises UserError for unsupported models, devices and searches.
        """

    def prepare(self, engine: Any, model: nn.Module) -> None:
        """Prepare a model on a CPU for many searches; may take as long as a few. Called before the second batch."""
