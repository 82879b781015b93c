"""Greedy search: the most probable word, at every step."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from nmt import register
from nmt.decoders.base import Decoder, Hypothesis, SearchOptions, run_search, signature
from nmt.decoders.filters import Constraints
from nmt.models.base import Scorer


@dataclass(frozen=True, kw_only=True)
class GreedyOptions(SearchOptions):
    pass


@register("decoder", "greedy", GreedyOptions)
class Greedy(Decoder):
    """The most probable word at every step, without a second thought."""

    def __init__(self, options: GreedyOptions) -> None:
        self.options = options

    @property
    def signature(self) -> str:
        return signature("greedy", self.options)

    def decode(self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        """See Decoder; one hypothesis a sentence, its score is its log-probability."""
        filters = self.filters(self.options, constraints, source.device)
        limits = self.options.limits(source, constraints)
        found = run_search(scorer, source, 1, limits, filters, lambda log_probs, rows, step: log_probs.argmax(1))
        return [[hypothesis] for hypothesis in found]
