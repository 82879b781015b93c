"""The interface of search speedups, faster ways to do what the built-in search does.

A speedup is active if one of its options differs from its default, or if its options class says so through `is_active`.
Its options are options of `nmt translate`.
"""

from typing import Any, ClassVar

from torch import nn


class SearchSpeedup:
    """A faster way to search. A registered speedup is built as `cls(options)`, with the options of a Translator.

    order: the speedup with the lowest order is applied first
    """

    order: ClassVar[int] = 0

    def __init__(self, options: Any) -> None:
        self.options = options

    def begin(self, engine: Any, decoder: Any) -> None:
        """Change an engine (nmt.translate.built_in_engine.BuiltInEngine) after its models are loaded and before its first search.

        It may set `engine.products`, which computes the matrix products of every search, and `new_search` of a Transformer.
        Raises UserError if it does not support the model, the device or the decoder.
        """

    def prepare(self, engine: Any, model: nn.Module) -> None:
        """Prepare a model on a CPU for many searches. May take as long as a few searches. Called before the second batch."""
