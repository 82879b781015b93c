"""Sampling: words drawn by their probability; what is drawn does not depend on the batch.

A word is drawn by the Gumbel-max trick: the greatest of log-probability + Gumbel noise. The noise of a word is a function of
(sampling_seed, the source sentence, which sample, step, word), so a sentence gives the same samples in any batch, on any
device, and wherever it stands in the input; two equal lines give equal samples.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from nmt import opt, register
from nmt.decoders.base import Choose, Decoder, Hypothesis, SearchOptions, run_search, signature
from nmt.decoders.filters import Constraints, likely, top_p
from nmt.models.base import Scorer
from nmt.symbols import PAD

TOGETHER: Final = 16  # samples of a sentence that are drawn at once: each looks over the cache of all of those
_32_BITS: Final = 0xFFFFFFFF


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(SearchOptions):
    temperature: float = opt(1.0, "divides the log-probabilities; below 1 is bolder in what is likely, above 1 wilder")
    top_k: int = opt(0, "draw from this many most probable words; 0 draws from all")
    top_p: float = opt(
        1.0, "draw from the fewest words that have this probability together (after temperature and top_k)"
    )
    epsilon: float = opt(0.0, "never draw a word of less probability than this (Hewitt et al., 2022); 0 allows all")
    sampling_seed: int = opt(1, "with the source sentence it decides what is drawn; equal lines give equal samples")
    n_best: int = opt(
        1, "independent samples for each sentence, shown with the most probable first", aliases=("nbest",)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature}; it must be above 0")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; it must be at least 0")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1")
        if not 0 <= self.epsilon < 1:
            raise ValueError(f"epsilon is {self.epsilon}; it must be at least 0 and below 1")
        if self.n_best < 1:
            raise ValueError(f"n_best is {self.n_best}; it must be at least 1")


@register("decoder", "sampling", SamplingOptions)
class Sampling(Decoder):
    """Words drawn by their probability, with temperature, top-k, top-p and epsilon."""

    takes_shortlist = False  # what is drawn is a function of a word's number

    def __init__(self, options: SamplingOptions) -> None:
        self.options = options
        self.n_best, self.paths = options.n_best, min(options.n_best, TOGETHER)

    @property
    def signature(self) -> str:
        return signature("sampling", self.options)

    def decode(self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        """See Decoder; n_best independent samples a sentence. Log-probabilities are the Scorer's own, untempered."""
        n, filters = self.n_best, self.filters(self.options, constraints, source.device)
        limits = self.options.limits(source, constraints)
        keys = _keys(self.options.sampling_seed, source, n).view(-1, n)  # B n
        found: list[list[Hypothesis]] = [[] for _ in constraints]
        for some in keys.split(TOGETHER, 1):
            drawn = run_search(scorer, source, some.shape[1], limits, filters, self._chooser(some.flatten()))
            for number, ones in enumerate(found):
                ones += drawn[number * some.shape[1] : (number + 1) * some.shape[1]]
        return [sorted(ones, key=lambda one: -one.score) for ones in found]

    def _chooser(self, keys: Tensor) -> Choose:
        """What draws the next words. keys: (N,) of all rows"""

        def choose(log_probs: Tensor, rows: Tensor, step: int) -> Tensor:
            values, words = self._candidates(log_probs / self.options.temperature)
            noise = _gumbel(_mixed(keys[rows] ^ _mixed(torch.full_like(rows, step))), words)
            return words.gather(1, (values + noise).argmax(1, keepdim=True)).squeeze(1)

        return choose

    def _candidates(self, log_probs: Tensor) -> tuple[Tensor, Tensor]:
        """The words that may be drawn and their log-probabilities, not normalised: (N, V) -> (N, K), (N, K)."""
        options, V = self.options, log_probs.shape[1]
        if options.epsilon:
            log_probs = likely(log_probs, options.epsilon)
        if not options.top_k and options.top_p == 1:
            return log_probs, torch.arange(V, device=log_probs.device).expand_as(log_probs)
        values, words = log_probs.topk(min(options.top_k or V, V))  # the greatest first
        return (values if options.top_p == 1 else top_p(values, options.top_p)), words


def _keys(seed: int, source: Tensor, copies: int) -> Tensor:
    """32 random bits for each sample of each row of source (B, S): (B * copies,)"""
    keys = []
    for row in source.cpu().numpy():
        words = row[row != PAD].astype("<i8").tobytes()
        digest = hashlib.shake_128(f"{seed} ".encode() + words).digest(4 * copies)
        keys.append(np.frombuffer(digest, "<u4").astype(np.int64))
    return torch.from_numpy(np.concatenate(keys)).to(source.device)


def _mixed(bits: Tensor) -> Tensor:
    """A 32-bit integer hash, of and in int64 (Wellons' lowbias32)."""
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & _32_BITS
    bits = ((bits ^ (bits >> 15)) * 0x846CA68B) & _32_BITS
    return bits ^ (bits >> 16)


def _gumbel(keys: Tensor, words: Tensor) -> Tensor:
    """Gumbel noise for each word, a function of its row's key: keys (N,), words (N, K) -> (N, K) float64."""
    uniform = (_mixed(_mixed(words) ^ keys[:, None]).double() + 0.5) / 2**32
    return -torch.log(-torch.log(uniform))
