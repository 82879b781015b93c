"""Sampling: draws tokens according to their probabilities, independently of the batch.

Inverse transform sampling takes the first token with a cumulative probability above a uniform random number. That number is a
function of (sampling_seed, source sentence, index of the sample, step). So a sentence gets the same samples in any batch, on
any device, and anywhere in the input. Identical lines get identical samples.
Dimensions: B sentences, S source positions, N rows, V vocabulary, K allowed tokens.
"""

import hashlib
import math
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor

from nmt import register
from nmt.decoders.base import Decoder, run_search
from nmt.decoders.filters import Filters
from nmt.decoders.hypothesis import Constraints, Hypothesis
from nmt.extensions.searches.decoders.options import SamplingOptions
from nmt.models.base import Scorer
from nmt.symbols import PAD

MAX_SAMPLES_AT_ONCE: Final = 16  # maximum per sentence; a sample attends to the caches of all samples drawn with it
_32_BITS: Final = 0xFFFFFFFF


@register("decoder", "sampling", SamplingOptions)
class Sampling(Decoder):
    """Sampling with temperature, top-k, top-p and epsilon."""

    takes_shortlist = False  # a draw depends on the ids of the tokens

    def __init__(self, options: SamplingOptions) -> None:
        self.options = options
        self.n_best, self.paths = options.n_best, min(options.n_best, MAX_SAMPLES_AT_ONCE)

    def decode(self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        """See Decoder. Draws n_best independent samples per sentence. Log-probabilities ignore the temperature."""
        filters = Filters(self.options, constraints, source, self.filters)
        keys = _keys(self.options.sampling_seed, self.variation, source, self.n_best)  # B n_best
        samples: list[list[Hypothesis]] = [[] for _ in constraints]
        for some_keys in keys.split(MAX_SAMPLES_AT_ONCE, 1):
            W = some_keys.shape[1]
            choose = partial(self._choose, some_keys.flatten())
            hypotheses = run_search(scorer, source, W, filters, choose)
            for sentence, sentence_samples in enumerate(samples):
                sentence_samples += hypotheses[sentence * W : (sentence + 1) * W]
        return [sorted(sentence_samples, key=lambda sample: -sample.score) for sentence_samples in samples]

    def _choose(self, keys: Tensor, log_probs: Tensor, rows: Tensor, step: int) -> Tensor:
        """Draw the next tokens (see Choose). keys: (N,) random bits for each path"""
        values, tokens = self._candidates(log_probs / self.options.temperature)  # N K
        drawn = draw(values, _hash(keys[rows] ^ _hash(torch.full_like(rows, step))))
        return drawn if tokens is None else tokens.gather(1, drawn[:, None]).squeeze(1)

    def _candidates(self, log_probs: Tensor) -> tuple[Tensor, Tensor | None]:
        """The allowed tokens: log-probabilities (N, K), not normalised, and ids (N, K). Ids are None for the whole vocabulary.

        log_probs: (N, V)
        """
        options, V = self.options, log_probs.shape[1]
        if options.epsilon:
            log_probs = above_epsilon(log_probs, options.epsilon)
        if not options.top_k and options.top_p == 1:
            return log_probs, None
        values, tokens = log_probs.topk(min(options.top_k or V, V))  # in descending order
        return (values if options.top_p == 1 else top_p(values, options.top_p)), tokens


def _keys(seed: int, variation: int, source: Tensor, count: int) -> Tensor:
    """32 random bits per sample, for `count` samples of each row of source (B, S): (B, count) int64"""
    keys = []
    prefix = f"{seed} {variation} " if variation else f"{seed} "
    for row in source.cpu().numpy():
        tokens = row[row != PAD].astype("<i8").tobytes()
        digest = hashlib.shake_128(prefix.encode() + tokens).digest(4 * count)
        keys.append(np.frombuffer(digest, "<u4").astype(np.int64))
    return torch.from_numpy(np.stack(keys)).to(source.device)


def _hash(bits: Tensor) -> Tensor:
    """Hash 32-bit integers that are stored as int64 (Wellons' lowbias32)."""
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & _32_BITS
    bits = ((bits ^ (bits >> 15)) * 0x846CA68B) & _32_BITS
    return bits ^ (bits >> 16)


def draw(log_probs: Tensor, bits: Tensor) -> Tensor:
    """Draw one column of each row according to the columns' probabilities (Devroye, 1986, section III.2): (N,) int64.

    log_probs: (N, K), not necessarily normalised; a column of -inf is never drawn
    bits: (N,) int64, 32 random bits for each row, which determine the draw
    """
    cumulative = torch.softmax(log_probs, 1).cumsum(1, dtype=torch.float64)  # N K
    uniform = (bits.double() + 0.5) / 2**32  # below 1, so that the cumulative probability always exceeds it
    found = torch.searchsorted(cumulative, uniform[:, None] * cumulative[:, -1:], right=True).squeeze(1)
    return found.clamp(max=log_probs.shape[1] - 1)  # needed if a row contains NaN


def top_p(log_probs: Tensor, p: float) -> Tensor:
    """Keep the smallest set of tokens with a total probability of at least p (Holtzman et al., 2020); others get -inf.

    log_probs: (N, K), not necessarily normalised, in descending order; the first token is always kept
    """
    probabilities = torch.softmax(log_probs, 1)
    preceding = probabilities.cumsum(1) - probabilities
    return log_probs.masked_fill(preceding >= p, -math.inf)


def above_epsilon(log_probs: Tensor, epsilon: float) -> Tensor:
    """Keep the best token and those with a probability of at least epsilon (Hewitt et al., 2022); others get -inf.

    log_probs: (N, V), not necessarily normalised
    """
    log_probs = log_probs.log_softmax(1)
    return log_probs.masked_fill(log_probs < log_probs.amax(1, keepdim=True).clamp(max=math.log(epsilon)), -math.inf)
