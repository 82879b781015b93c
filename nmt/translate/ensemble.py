"""An ensemble: a Scorer whose log-probabilities are a weighted mean over several models, of any kinds."""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Literal, cast

import torch
from torch import Tensor, nn

from nmt.batch import Batch
from nmt.models.base import Model, Scorer, State, prepared_scorer

Mean = Literal["log-probabilities", "probabilities"]


class Ensemble(nn.Module):
    """The weighted mean of models that share their vocabularies.

    weights: of each model, normalised to sum to 1; none: equal weights
    mean: of log-probabilities, normalised again (Marian, Sockeye), or of probabilities (fairseq)
    alignment_layer: see Model
    """

    alignment_layer = 0

    def __init__(
        self, models: Sequence[nn.Module], weights: Sequence[float] | None = None, mean: Mean = "log-probabilities"
    ) -> None:
        super().__init__()
        self.models, self.mean = nn.ModuleList(models), mean
        self.weights = normalize_weights(weights, len(models))
        self._scorers = list(cast(Sequence[Scorer], models))

    def prepared(self) -> "Ensemble":
        """See prepared_scorer: the ensemble of the prepared models."""
        ensemble = copy(self)
        ensemble._scorers = [prepared_scorer(scorer) for scorer in self._scorers]
        return ensemble

    def start(self, source: Tensor) -> State:
        return _joined([scorer.start(source) for scorer in self._scorers], False, None)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See Scorer. The attention is the weighted mean over the models that have attention."""
        results = [scorer.step(tokens, part) for scorer, part in zip(self._scorers, self._parts(state), strict=True)]
        weighted = [
            log_probs.double() * weight if self.mean == "log-probabilities" else log_probs.double() + math.log(weight)
            for (log_probs, _), weight in zip(results, self.weights, strict=True)
            if weight
        ]
        terms = torch.stack(weighted)
        log_probs = terms.sum(0).log_softmax(-1) if self.mean == "log-probabilities" else terms.logsumexp(0)
        parts = [part for _, part in results]
        return log_probs.float(), _joined(parts, state.watched, self._mean_of([part.attention for part in parts]))

    def attentions(self, batch: Batch) -> dict[str, Tensor]:
        """See Model: the attention of `step` as one layer with one head. Only for models, not for other Scorers."""
        layers = [(model, model.attentions(batch).get("cross")) for model in cast(list[Model], list(self.models))]
        heads = [None if cross is None else cross[model.alignment_layer].mean(1) for model, cross in layers]
        mean = self._mean_of(heads)  # B T S
        return {} if mean is None else {"cross": mean[None, :, None]}

    def compile_steps(self) -> None:
        for model in self.models:
            cast(Model, model).compile_steps()

    def _mean_of(self, attentions: Sequence[Tensor | None]) -> Tensor | None:
        """The weighted mean of the attentions that exist; None without any."""
        rows = zip(self.weights, attentions, strict=True)
        present = [(weight, attention) for weight, attention in rows if attention is not None]
        total = sum(weight for weight, _ in present)
        return torch.stack([attention * (weight / total) for weight, attention in present]).sum(0) if total else None

    def _parts(self, state: State) -> list[State]:
        return [
            replace(state, sentences=_part(i, state.sentences), hypotheses=_part(i, state.hypotheses), attention=None)
            for i in range(len(self._scorers))
        ]


def normalize_weights(weights: Sequence[float] | None, count: int) -> list[float]:
    """Weights divided by their sum; none: equal weights. ValueError unless there are `count`, at least 0, not all 0."""
    given = list(weights or [1.0] * count)
    if len(given) != count or not all(0 <= weight < math.inf for weight in given) or not 0 < sum(given) < math.inf:
        raise ValueError(f"must be {count} numbers, at least 0 and not all 0; given {given}")
    return [weight / sum(given) for weight in given]


def _joined(states: Sequence[State], watched: bool, attention: Tensor | None) -> State:
    """Several states as one. The names of their tensors begin with the number of the model: `0/memory`."""
    numbered = list(enumerate(states))
    sentences = {f"{i}/{name}": tensor for i, state in numbered for name, tensor in state.sentences.items()}
    hypotheses = {f"{i}/{name}": tensor for i, state in numbered for name, tensor in state.hypotheses.items()}
    record = max(states, key=lambda state: state.num_entries)  # a model that does not use ancestors appends no entries
    return State(sentences, hypotheses, states[0].length, watched, attention, record.ancestors, record.num_entries)


def _part(number: int, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    prefix = f"{number}/"
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
