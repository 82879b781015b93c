"""Ensembles: a Scorer that computes a weighted mean over several models, which may be of different kinds."""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Literal, cast

import torch
from torch import Tensor, nn

from nmt.batch import Batch
from nmt.models.base import Model, Scorer, State, scorer_for_search

Mean = Literal["log-probabilities", "probabilities"]


@dataclass
class EnsembleState(State):
    """The search state of an ensemble: one state per model, besides what a search stores itself."""

    parts: list[State] = field(default_factory=list)

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        for part in self.parts:
            part.reorder(rows)

    def keep_sentences(self, sentences: Tensor) -> None:
        super().keep_sentences(sentences)
        for part in self.parts:
            part.keep_sentences(sentences)


class Ensemble(nn.Module):
    """A weighted mean of models that share their vocabularies.

    weights: weight of each model, normalised to sum to 1; equal weights if None or empty
    mean: whether to average log-probabilities and renormalise (Marian, Sockeye), or probabilities (fairseq)
    alignment_layer: see Model
    """

    alignment_layer = 0
    temperature = None  # an average of calibrated models is not calibrated

    def __init__(
        self, models: Sequence[nn.Module], weights: Sequence[float] | None = None, mean: Mean = "log-probabilities"
    ) -> None:
        super().__init__()
        self.models, self.mean = nn.ModuleList(models), mean
        self.weights = normalize_weights(weights, len(models))
        self._scorers = list(cast(Sequence[Scorer], models))

    @property
    def has_attention(self) -> bool:
        return any(cast(Model, model).has_attention for model in self.models)

    def for_search(self) -> "Ensemble":
        """See scorer_for_search. Each model looks up its weights once."""
        ensemble = copy(self)
        ensemble._scorers = [scorer_for_search(scorer) for scorer in self._scorers]
        return ensemble

    def start(self, source: Tensor) -> State:
        return EnsembleState(parts=[scorer.start(source) for scorer in self._scorers])

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See Scorer. The attention is a weighted mean over the models that have attention."""
        results = []
        for scorer, part in zip(self._scorers, cast(EnsembleState, state).parts, strict=True):
            part.watched = state.watched
            results.append(scorer.step(tokens, part))
        weighted = [
            log_probs.double() * weight if self.mean == "log-probabilities" else log_probs.double() + math.log(weight)
            for (log_probs, _), weight in zip(results, self.weights, strict=True)
            if weight
        ]
        terms = torch.stack(weighted)
        log_probs = terms.sum(0).log_softmax(-1) if self.mean == "log-probabilities" else terms.logsumexp(0)
        parts = [part for _, part in results]
        attention = self._mean_of([part.attention for part in parts])
        return log_probs.float(), EnsembleState(
            length=state.length + 1, watched=state.watched, attention=attention, parts=parts
        )

    def attentions(self, batch: Batch) -> dict[str, Tensor]:
        """See Model. Returns the attention of `step` as one layer with one head. Works only if all Scorers are models."""
        layers = [(model, model.attentions(batch).get("cross")) for model in cast(list[Model], list(self.models))]
        heads = [None if cross is None else cross[model.alignment_layer].mean(1) for model, cross in layers]
        mean = self._mean_of(heads)  # B T S
        return {} if mean is None else {"cross": mean[None, :, None]}

    def _mean_of(self, attentions: Sequence[Tensor | None]) -> Tensor | None:
        """The weighted mean of the attentions that exist, or None if there are none."""
        rows = zip(self.weights, attentions, strict=True)
        present = [(weight, attention) for weight, attention in rows if attention is not None]
        total = sum(weight for weight, _ in present)
        return torch.stack([attention * (weight / total) for weight, attention in present]).sum(0) if total else None


def normalize_weights(weights: Sequence[float] | None, count: int) -> list[float]:
    """Divide weights by their sum. No weights means equal weights. Raises ValueError unless there are `count` usable weights."""
    given = list(weights or [1.0] * count)
    if len(given) != count or not all(0 <= weight < math.inf for weight in given) or not 0 < sum(given) < math.inf:
        raise ValueError(f"must be {count} non-negative numbers, not all 0, but got {given}")
    return [weight / sum(given) for weight in given]
