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
from nmt.symbols import PAD
from nmt.text.pipeline import Pipeline
from nmt.translate.ensemble import Ensemble
from nmt.translate.wrapper import BatchSearch, SearchWrapper

SHARE: Final = "share of the encoder"  # key of a tensor in the state of a search


@options_class
class EncoderShareOptions:
    encoder_share: float | None = opt(
        None, "weight of the encoder's log-probabilities, relative to the decoder's", minimum=0
    )


@register("wrapper", "encoder-share", EncoderShareOptions)
class EncoderShare(SearchWrapper):
    """Adds to the score of token n its log-probability given the encoder's output at source token n; a mean for ensembles."""

    def __init__(self, options: Any, pipeline: Pipeline, scorer: nn.Module) -> None:
        models: list[nn.Module] = [scorer]
        weights = [1.0]
        if isinstance(scorer, Ensemble):
            models, weights = list(scorer.models.children()), scorer.weights
        if not all(isinstance(model, Transformer) for model in models):
            raise UserError("--encoder-share works only with models of the kind 'transformer' (drop --encoder-share)")
        if getattr(options, "shortlist", None) is not None:
            raise UserError("--encoder-share and --shortlist cannot be combined (drop --shortlist)")
        self.transformers = cast(list[Transformer], models)
        self.weights = [options.encoder_share * weight for weight in weights]

    def around(self, search: BatchSearch) -> BatchSearch:
        def with_encoder(scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
            with torch.inference_mode():
                both = zip(self.transformers, self.weights, strict=True)
                terms = torch.stack([weight * encoder_log_probs(model, source) for model, weight in both]).sum(0)
                shared = shared_scorer(scorer_for_search(scorer), terms)  # B S V
            return search(shared, source, constraints)

        return with_encoder


def encoder_log_probs(model: Transformer, source: Tensor) -> Tensor:
    """The log-probabilities of target tokens in nats, given the encoder's output at each source token: (B, S, V) float32.

    They are 0 for padding.
    """
    logits: Tensor = model.output(model.encode(source))
    return logits.float().log_softmax(-1).masked_fill_((source == PAD)[..., None], 0.0)


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
