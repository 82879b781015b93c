"""Search among the target tokens of a shortlist instead of the whole vocabulary: a smaller projection."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from msgspec import structs
from torch import Tensor

from nmt.decoders.base import Decoder
from nmt.decoders.hypothesis import Constraints, Hypothesis
from nmt.extensions.searches.shortlist_file import Shortlist
from nmt.models.base import Model, PreparedScorer, State
from nmt.symbols import PAD


def shortlist_scorer(model: Model, tokens: Tensor) -> PreparedScorer:
    """A Scorer over some tokens of a model. tokens: (V',) ids, sorted, the control symbols first"""
    linear: Any = model.output  # of any class that can compute some of its outputs
    scorer = model.prepared(linear.rows(tokens).prepared() if hasattr(linear, "rows") else None)

    def step(positions: Tensor, state: State) -> tuple[Tensor, State]:
        log_probs, state = scorer.step(tokens[positions], state)
        # a model that ignores the output scores the whole vocabulary
        return (log_probs if log_probs.shape[1] == len(tokens) else log_probs[:, tokens]), state

    return PreparedScorer(scorer.start, step)


def search_shortlist(
    decoder: Decoder, model: Model, source: Tensor, constraints: Sequence[Constraints], shortlist: Shortlist
) -> list[list[Hypothesis]]:
    """Search among the tokens of a shortlist; with texts to avoid, among the whole vocabulary."""
    if any(constraint.avoid for constraint in constraints):
        return decoder.search(model, source, constraints)
    ids = source.cpu().numpy()
    required = [
        token for constraint in constraints for part in (constraint.prefix, *constraint.phrases) for token in part
    ]
    tokens = np.union1d(shortlist.of(ids[ids != PAD]), required).astype(np.int64)

    def positions(ids: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(np.searchsorted(tokens, ids).tolist())

    inner = [
        Constraints(positions(constraint.prefix), tuple(map(positions, constraint.phrases)))
        for constraint in constraints
    ]
    scorer = shortlist_scorer(model, torch.from_numpy(tokens).to(source.device))
    return [
        [structs.replace(hypothesis, tokens=tokens[hypothesis.tokens].tolist()) for hypothesis in hypotheses]
        for hypotheses in decoder.search(scorer, source, inner)
    ]
