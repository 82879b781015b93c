"""Several models as one: a Scorer whose next word is what they say together, whatever kind of model each is."""

import math
from collections.abc import Sequence
from copy import copy
from typing import Literal, cast

import torch
from torch import Tensor, nn

from nmt.batch import Batch
from nmt.models.base import Model, Scorer, State, prepare

Mean = Literal["log-probabilities", "probabilities"]


class Ensemble(nn.Module):
    """Models that share their vocabularies.

    weights: of each model, made to sum to 1; none is the same for all
    mean: of log-probabilities (Marian, Sockeye; made to sum to 1 again), or of probabilities (fairseq)
    """

    def __init__(
        self, models: Sequence[nn.Module], weights: Sequence[float] | None = None, mean: Mean = "log-probabilities"
    ) -> None:
        super().__init__()
        self.models, self.mean = nn.ModuleList(models), mean
        self.weights = normalize_weights(weights, len(models))
        self._scorers = list(cast(Sequence[Scorer], models))

    def prepared(self) -> "Ensemble":
        """See PreparableScorer: the ensemble of the prepared models."""
        ensemble = copy(self)
        ensemble._scorers = [prepare(scorer) for scorer in self._scorers]
        return ensemble

    def start(self, source: Tensor) -> State:
        """See Scorer."""
        return _joined([scorer.start(source) for scorer in self._scorers], False, None)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See Scorer; the attention is the mean of those that have one, by weight."""
        found = [scorer.step(tokens, one) for scorer, one in zip(self._scorers, self._parts(state), strict=True)]
        weighted = [
            log_probs.double() * weight if self.mean == "log-probabilities" else log_probs.double() + math.log(weight)
            for (log_probs, _), weight in zip(found, self.weights, strict=True)
            if weight
        ]
        together = torch.stack(weighted)
        log_probs = together.sum(0).log_softmax(-1) if self.mean == "log-probabilities" else together.logsumexp(0)
        states = [one for _, one in found]
        return log_probs.float(), _joined(states, state.watched, self._mean_of([one.attention for one in states]))

    def attentions(self, batch: Batch) -> dict[str, Tensor]:
        """See Model: what `step` tells, as one layer of one head; of models, not of other Scorers."""
        found = [(model, model.attentions(batch).get("cross")) for model in cast(list[Model], list(self.models))]
        heads = [None if cross is None else cross[model.alignment_layer].mean(1) for model, cross in found]
        mean = self._mean_of(heads)  # B T S
        return {} if mean is None else {"cross": mean[None, :, None]}

    @property
    def alignment_layer(self) -> int:
        """See Model."""
        return 0

    def compile_steps(self) -> None:
        """See Model."""
        for model in self.models:
            cast(Model, model).compile_steps()

    def _mean_of(self, attentions: Sequence[Tensor | None]) -> Tensor | None:
        """The mean by weight of those there are."""
        seen = [(weight, one) for weight, one in zip(self.weights, attentions, strict=True) if one is not None]
        total = sum(weight for weight, _ in seen)
        return torch.stack([one * (weight / total) for weight, one in seen]).sum(0) if total else None

    def _parts(self, state: State) -> list[State]:
        """The state of each model."""
        return [
            State(
                _under(number, state.sentences),
                _under(number, state.hypotheses),
                state.length,
                state.watched,
                ancestors=state.ancestors,
                num_entries=state.num_entries,
            )
            for number in range(len(self._scorers))
        ]


def normalize_weights(weights: Sequence[float] | None, count: int) -> list[float]:
    """Weights divided by their sum; none: equal weights. ValueError unless there are `count`, at least 0, not all 0."""
    given = list(weights or [1.0] * count)
    if len(given) != count or not all(0 <= weight < math.inf for weight in given) or not 0 < sum(given) < math.inf:
        raise ValueError(f"must be {count} numbers, at least 0 and not all 0; given {given}")
    return [weight / sum(given) for weight in given]


def _joined(states: Sequence[State], watched: bool, attention: Tensor | None) -> State:
    """One state of many, their tensors told apart by the number before their names."""
    sentences = {
        f"{number}/{name}": tensor for number, one in enumerate(states) for name, tensor in one.sentences.items()
    }
    hypotheses = {
        f"{number}/{name}": tensor for number, one in enumerate(states) for name, tensor in one.hypotheses.items()
    }
    record = max(states, key=lambda one: one.num_entries)  # a model that does not use ancestors appends no entries
    return State(sentences, hypotheses, states[0].length, watched, attention, record.ancestors, record.num_entries)


def _under(number: int, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    start = f"{number}/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
