"""Searches only among the target tokens of a shortlist, so that the output projection is smaller."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch
from msgspec import structs
from torch import Tensor, nn

from nmt import register
from nmt.decoders.base import Decoder
from nmt.decoders.hypothesis import Constraints, Hypothesis
from nmt.errors import UserError
from nmt.extensions.searches.shortlist_file import Shortlist
from nmt.extensions.searches.wrappers.options import ShortlistSearchOptions
from nmt.models.base import Model, Scorer, SearchScorer, State
from nmt.symbols import PAD
from nmt.text.pipeline import Pipeline
from nmt.translate.wrapper import BatchSearch, SearchWrapper

ALLOWED: Final = "allowed of a shortlist"  # key of a tensor in the state of a search


@register("wrapper", "shortlist", ShortlistSearchOptions)
class ShortlistSearch(SearchWrapper):
    """A search among the likely translations of the source tokens (see `nmt shortlist`).

    Decoders whose results depend on the rest of the vocabulary set `takes_shortlist = False`.
    """

    order = 0

    def __init__(self, options: Any, pipeline: Pipeline, scorer: nn.Module) -> None:
        if not isinstance(scorer, Model):
            raise UserError("--shortlist works with only one model, but several were given (drop --shortlist)")
        self.file, self.pipeline = Path(options.shortlist), pipeline

    def decoder(self, decoder: Decoder) -> Decoder:
        if not getattr(decoder, "takes_shortlist", True):
            raise UserError(
                f"--shortlist and --decoder {decoder.part_name} cannot be combined (use --decoder beam or greedy)"
            )
        self.shortlist = Shortlist.load(self.file, self.pipeline.hash, self.pipeline.sizes)
        return decoder

    def around(self, search: BatchSearch) -> BatchSearch:
        def among_few(scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
            return search_shortlist(search, cast(Model, scorer), source, constraints, self.shortlist)

        return among_few


def shortlist_scorer(model: Model, tokens: Tensor, allowed: Tensor) -> SearchScorer:
    """Make a Scorer that covers only some of a model's tokens. Each sentence may use a different subset of them.

    tokens: (V',) ids, sorted, with the control symbols first
    allowed: (B, V') whether a sentence may use each token
    """
    linear: Any = model.output  # any class that can compute only a subset of its outputs
    scorer = model.for_search(linear.rows(tokens).search_step() if hasattr(linear, "rows") else None)

    def start(source: Tensor) -> State:
        state = scorer.start(source)
        state.sentences[ALLOWED] = allowed
        return state

    def step(positions: Tensor, state: State) -> tuple[Tensor, State]:
        own = state.sentences.pop(ALLOWED)  # B V'
        log_probs, state = scorer.step(tokens[positions], state)
        state.sentences = {**state.sentences, ALLOWED: own}
        if log_probs.shape[1] != len(tokens):  # models that ignore `output` score the whole vocabulary
            log_probs = log_probs[:, tokens]
        if not own.all():  # a sentence's probabilities must not depend on other sentences
            row_allowed = own.repeat_interleave(len(log_probs) // len(own), dim=0)  # N V'
            log_probs = log_probs.masked_fill(~row_allowed, -torch.inf).log_softmax(1)
        return log_probs, state

    return SearchScorer(start, step)


def search_shortlist(
    search: BatchSearch, model: Model, source: Tensor, constraints: Sequence[Constraints], shortlist: Shortlist
) -> list[list[Hypothesis]]:
    """Search among a shortlist's tokens, or among the whole vocabulary if there are filters, which need all ids."""
    if any(constraint.filters for constraint in constraints):
        return search(model, source, constraints)
    own = [
        np.union1d(
            shortlist.of(ids[ids != PAD]), [*constraint.prefix, *(t for part in constraint.phrases for t in part)]
        )
        for ids, constraint in zip(source.cpu().numpy(), constraints, strict=True)
    ]
    tokens = np.unique(np.concatenate(own)).astype(np.int64)
    allowed = torch.from_numpy(np.stack([np.isin(tokens, ids, assume_unique=True) for ids in own])).to(source.device)

    def positions(ids: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(np.searchsorted(tokens, ids).tolist())

    inner = [
        Constraints(positions(constraint.prefix), tuple(map(positions, constraint.phrases)))
        for constraint in constraints
    ]
    scorer = shortlist_scorer(model, torch.from_numpy(tokens).to(source.device), allowed)
    return [
        [structs.replace(hypothesis, tokens=tokens[hypothesis.tokens].tolist()) for hypothesis in hypotheses]
        for hypotheses in search(scorer, source, inner)
    ]
