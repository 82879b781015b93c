"""Greedy search, which takes the most probable token at each step."""

from collections.abc import Sequence

from torch import Tensor

from nmt import register
from nmt.decoders.base import Decoder, run_search
from nmt.decoders.filters import Filters
from nmt.decoders.hypothesis import Constraints, Hypothesis
from nmt.decoders.options import SearchOptions
from nmt.models.base import Scorer


@register("decoder", "greedy", SearchOptions)
class Greedy(Decoder):
    """Greedy search, which takes the most probable token at each step."""

    def decode(self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        """See Decoder. Returns one hypothesis per sentence, scored by its log-probability."""
        filters = Filters(self.options, constraints, source, self.filters)
        hypotheses = run_search(scorer, source, 1, filters, lambda log_probs, rows, step: log_probs.argmax(1))
        return [[hypothesis] for hypothesis in hypotheses]
