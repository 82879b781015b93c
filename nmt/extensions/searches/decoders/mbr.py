"""Minimum Bayes risk (Kumar and Byrne, 2004; Eikema and Aziz, 2020): chooses the candidate closest to all others.

Candidates are samples with equal weights, or another search's hypotheses, weighted by their probabilities. A candidate's score
is its expected utility: the weighted mean of the metric with each candidate as the reference.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import structs
from torch import Tensor

from nmt import register, registry
from nmt.decoders.base import Decoder
from nmt.decoders.hypothesis import Constraints, Hypothesis
from nmt.extensions.searches.decoders.options import MbrOptions
from nmt.extensions.searches.decoders.sampling import Sampling
from nmt.extensions.searches.utilities import pairwise
from nmt.metrics.base import Metric
from nmt.models.base import Scorer
from nmt.text.pipeline import Pipeline


@register("decoder", "mbr", MbrOptions)
class Mbr(Decoder):
    """Minimum Bayes risk: from samples or beam hypotheses, chooses the one that is most similar to the others."""

    takes_shortlist = False  # candidates are compared as text

    def __init__(self, options: MbrOptions) -> None:
        self.options = options
        self.n_best = options.n_best
        self._utility: Metric = registry.build(options.utility)
        self._utility.check()
        self._inner: Decoder = registry.build(options.inner_search())
        self.paths = self._inner.paths

    @property
    def takes_phrases(self) -> bool:
        return self._inner.takes_phrases

    def use_pipeline(self, pipeline: Pipeline) -> None:
        super().use_pipeline(pipeline)
        self._utility = registry.build(self.options.utility)
        self._utility.use_language(pipeline.target_lang)

    def decode(self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        """See Decoder. The score is the expected utility."""
        self._inner.target, self._inner.source_text, self._inner.filters = self.target, self.source_text, self.filters
        self._inner.variation = self.variation
        candidates = self._inner.search(scorer, source, constraints)
        return [
            self._ranked(row, row_candidates) for row, row_candidates in zip(source.tolist(), candidates, strict=True)
        ]

    def _ranked(self, source: list[int], candidates: list[Hypothesis]) -> list[Hypothesis]:
        """The `n_best` distinct candidates of a source row with the greatest expected utility, best first."""
        finite = [candidate for candidate in candidates if math.isfinite(candidate.log_prob)]
        if not finite:
            return candidates[:1]
        distinct = {tuple(candidate.tokens): candidate for candidate in finite}
        if isinstance(self._inner, Sampling):
            counts = Counter(tuple(candidate.tokens) for candidate in finite)
            weights = np.array([float(counts[tokens]) for tokens in distinct])
        else:
            log_probs = np.array([candidate.log_prob for candidate in distinct.values()])
            weights = np.exp(log_probs - log_probs.max())
        texts = [self.target.decode(tokens) if self.target else " ".join(map(str, tokens)) for tokens in distinct]
        source_text = self.source_text(source) if self.source_text else " ".join(map(str, source))
        utilities = pairwise(self._utility, source_text, texts)
        expected = (utilities if self._utility.higher_is_better else -utilities) @ (weights / weights.sum())
        ranked = [
            structs.replace(candidate, score=float(score))
            for candidate, score in zip(distinct.values(), expected, strict=True)
        ]
        return sorted(ranked, key=lambda candidate: -candidate.score)[: self.n_best]
