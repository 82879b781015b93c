"""The wrapper `encoder-share`: a search that also asks the encoder alone which token belongs to each source token.

A plug-in for `nmt translate --plugin encoder_share.py --encoder-share 0.5`. It is for models whose token n belongs to source
token n (pairs.py), trained with `--encoder-weight`. A decoder knows its own earlier tokens, right or wrong. The encoder does
not, so it does not repeat their errors. Dimensions: B sentences, S source positions, W hypotheses, N = B * W, V target tokens.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from nmt import UserError, opt, options_class, register
from nmt.decoders.hypothesis import Constraints, Hypothesis
from nmt.models.base import Scorer, SearchScorer, State, scorer_for_search
from nmt.models.transformer import Transformer
from nmt.text.pipeline import Pipeline
from nmt.translate.ensemble import Ensemble
from nmt.translate.wrapper import BatchSearch, SearchWrapper

SHARE: Final = "share of the encoder"  # key of a tensor in the state of a search


@options_class
class EncoderShareOptions:
    encoder_share: float | None = opt(
        None, "weight of the encoder's log-probabilities; those of the decoder have 1", minimum=0
    )


@register("wrapper", "encoder-share", EncoderShareOptions)
class EncoderShare(SearchWrapper):
    """Adds to the score of token n its log-probability given the encoder's output at source token n; a mean for ensembles."""

    def __init__(self, options: Any, pipeline: Pipeline, scorer: nn.Module) -> None:
        models = list(scorer.models) if isinstance(scorer, Ensemble) else [scorer]
        if not all(isinstance(model, Transformer) for model in models):
            raise UserError("--encoder-share: all models must be of the kind 'transformer'")
        self.weight, self.transformers = float(options.encoder_share), cast(list[Transformer], models)

    def around(self, search: BatchSearch) -> BatchSearch:
        def with_encoder(scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
            terms = torch.stack([encoder_log_probs(model, source) for model in self.transformers])  # M B S V
            return search(shared_scorer(scorer_for_search(scorer), self.weight * terms.mean(0)), source, constraints)

        return with_encoder


def encoder_log_probs(model: Transformer, source: Tensor) -> Tensor:
    """The log-probabilities of target tokens, in nats, given the encoder's output at each source token: (B, S, V) float32."""
    logits: Tensor = model.output(model.encode(source))
    return logits.float().log_softmax(-1)


def shared_scorer(scorer: Scorer, terms: Tensor) -> SearchScorer:
    """A Scorer whose step t adds the term of source position t. Positions after the last one add nothing. terms: (B, S, V)"""

    def start(source: Tensor) -> State:
        state = scorer.start(source)
        state.sentences[SHARE] = terms
        return state

    def step(tokens: Tensor, state: State) -> tuple[Tensor, State]:
        position, of_sentences = state.length, state.sentences.pop(SHARE)
        log_probs, state = scorer.step(tokens, state)
        state.sentences[SHARE] = of_sentences
        if position < of_sentences.shape[1]:
            of_position = of_sentences[:, position]  # B V
            log_probs = log_probs + of_position.repeat_interleave(len(tokens) // len(of_position), 0)
        return log_probs, state

    return SearchScorer(start, step)
