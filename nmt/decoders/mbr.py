"""Minimum Bayes risk (Kumar and Byrne, 2004; Eikema and Aziz, 2020): the candidate most like all candidates.

Candidates are samples, each of the same weight, or the hypotheses of a beam, weighted by their probability. The score of a
candidate is its expected utility: the weighted mean, over all candidates, of its metric with that candidate as the reference.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from torch import Tensor

from nmt import opt, options_class, register, registry
from nmt.decoders.base import Decoder, Hypothesis
from nmt.decoders.constraints import Constraints
from nmt.decoders.sampling import SamplingOptions
from nmt.metrics.base import Metric
from nmt.models.base import Scorer
from nmt.options import as_dict, options_of


@options_class
class MbrOptions(SamplingOptions):
    n_best: int = opt(1, "different translations shown, with the greatest expected utility first", minimum=1)
    candidates: Literal["sampling", "beam"] = opt(
        "sampling", "where the candidates come from; a beam has no length penalty"
    )
    num_candidates: int = opt(32, "candidates of a sentence: samples, or the size of the beam", minimum=1)
    utility: Literal["chrf", "bleu", "comet"] = opt(
        "chrf", "what is expected of a translation: chrF2, BLEU of the sentence, or COMET"
    )
    comet_model: str | None = opt(
        None, "with --utility comet: the checkpoint of a COMET model, which that library runs: a file to be trusted"
    )

    def __post_init__(self) -> None:
        if (self.utility == "comet") != (self.comet_model is not None):
            raise ValueError("utility comet needs a comet_model, and no other utility has one")
        if not self.n_best <= self.num_candidates:
            raise ValueError(f"--num-candidates {self.num_candidates}: must be at least --n-best, {self.n_best}")


@register("decoder", "mbr", MbrOptions)
class Mbr(Decoder):
    """Minimum Bayes risk: of samples or of a beam, the candidate most like the others."""

    takes_shortlist = False  # it reads its candidates as text

    def __init__(self, options: MbrOptions) -> None:
        self.options = options
        self.n_best = options.n_best
        entry = registry.find("decoder", options.candidates)
        known = {option.name for option in options_of(entry.options)}
        shared = {key: value for key, value in as_dict(options).items() if key in known}
        if options.candidates == "beam":
            shared |= {"beam_size": options.num_candidates, "length_penalty": "none"}
        self._utility: Metric = registry.build(
            registry.choose("metric", options.utility, {"comet_model": options.comet_model})
        )
        self._utility.check()
        self._inner: Decoder = entry.cls(entry.options(**shared | {"n_best": options.num_candidates}))
        self.paths = self._inner.paths

    def decode(self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        """See Decoder; the score is the expected utility."""
        self._inner.target = self.target
        candidates = self._inner.search(scorer, source, constraints)
        return [self._ranked(row, of_row) for row, of_row in zip(source.tolist(), candidates, strict=True)]

    def _ranked(self, source: list[int], candidates: list[Hypothesis]) -> list[Hypothesis]:
        """The n_best different candidates of a source row with the greatest expected utility, best first."""
        candidates = [candidate for candidate in candidates if math.isfinite(candidate.log_prob)] or candidates[:1]
        distinct = {tuple(candidate.tokens): candidate for candidate in candidates}
        log_probs = np.array([candidate.log_prob for candidate in distinct.values()])
        if self.options.candidates == "beam":
            weights = np.exp(log_probs - log_probs.max())
        else:
            counts = Counter(tuple(candidate.tokens) for candidate in candidates)
            weights = np.array([float(counts[tokens]) for tokens in distinct])
        texts = [self.target.decode(tokens) if self.target else " ".join(map(str, tokens)) for tokens in distinct]
        source_text = self.source_text(source) if self.source_text else " ".join(map(str, source))
        utilities = self._utility.pairwise(source_text, texts)
        expected = (utilities if self._utility.higher_is_better else -utilities) @ (weights / weights.sum())
        expected = np.where(np.isfinite(log_probs), expected, -math.inf)
        ranked = [
            replace(candidate, score=float(score)) for candidate, score in zip(distinct.values(), expected, strict=True)
        ]
        return sorted(ranked, key=lambda candidate: -candidate.score)[: self.n_best]
