"""Beam search with GNMT's length penalty (Wu et al., 2016, section 7), in batches, stopped when nothing better can come.

Each step takes the 2 W best continuations of a sentence's W hypotheses. Those of the best W that end go to its finished
list, the best W that do not end live on; so a beam of 1 without a penalty is greedy search.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from nmt import opt, register
from nmt.decoders.base import Decoder, Hypothesis, LengthOptions, forbid, signature, staying
from nmt.decoders.filters import force_end
from nmt.models.base import Scorer
from nmt.symbols import BOS, EOS, PAD


@dataclass(frozen=True, kw_only=True)
class BeamOptions(LengthOptions):
    beam_size: int = opt(4, "hypotheses that are kept for each sentence; 4 in the paper", aliases=("b", "beam"))
    length_penalty: Literal["gnmt", "average", "none"] = opt(
        "gnmt",
        "divides the log-probability: gnmt ((5 + n) / 6)^alpha, average n^alpha (fairseq's lenpen); n counts EOS",
    )
    alpha: float = opt(0.6, "strength of the length penalty; 0.6 in the paper")
    n_best: int = opt(1, "translations to give for each sentence, at most beam_size", aliases=("nbest",))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beam_size < 1:
            raise ValueError(f"beam_size is {self.beam_size}; it must be at least 1")
        if not 1 <= self.n_best <= self.beam_size:
            raise ValueError(f"n_best is {self.n_best}; it must be at least 1 and at most beam_size, {self.beam_size}")
        if not 0 <= self.alpha < math.inf:
            raise ValueError(f"alpha is {self.alpha}; it must be at least 0")

    def divisor(self, length: int) -> float:
        """The length penalty (equation 14): what a log-probability is divided by. length: tokens, EOS counted."""
        if self.length_penalty == "gnmt":
            return float(((5 + length) / 6) ** self.alpha)
        return float(length**self.alpha) if self.length_penalty == "average" else 1.0


@dataclass
class _Beams:
    """The sentences that are still searched.

    numbers: (B,) their rows in the source
    limits: (B,) the most tokens of a translation
    totals: (B, W) nats of the live hypotheses, best first; (B, 1) before the first word
    finished: (B, W) scores of the finished ones, best first; -inf where there is none yet
    ends: (B, W) where the finished ones end: tokens * W + place of the last among the live ones
    """

    numbers: Tensor
    limits: Tensor
    totals: Tensor
    finished: Tensor
    ends: Tensor

    @classmethod
    def start(cls, limits: list[int], beam_size: int, device: torch.device) -> "_Beams":
        B, W = len(limits), beam_size
        return cls(
            torch.arange(B, device=device),
            torch.tensor(limits, device=device),
            torch.zeros((B, 1), device=device),
            torch.full((B, W), -math.inf, device=device),
            torch.zeros((B, W), dtype=torch.int64, device=device),
        )

    def advance(self, log_probs: Tensor, step: int, divisor: float) -> tuple[Tensor, Tensor]:
        """Go on by one word. log_probs: (N, V); divisor: of hypotheses of `step` tokens, EOS counted.

        Returns for the live hypotheses, best first: which one each goes on from, and its word, both (B, W).
        """
        B, W = self.finished.shape
        values, words = _best(log_probs, 2 * W)  # N 2W
        values = values.view(B, -1, 2 * W) + self.totals[:, :, None]  # B W 2W
        scores, places = values.flatten(1).topk(2 * W)
        words = words.view(B, -1).gather(1, places)  # B 2W
        parents = places // (2 * W)
        ended = words == EOS
        found = (scores[:, :W] / divisor).masked_fill(~ended[:, :W], -math.inf)
        self.finished, chosen = torch.cat([self.finished, found], 1).topk(W)
        self.ends = torch.cat([self.ends, parents[:, :W] + (step - 1) * W], 1).gather(1, chosen)
        self.totals, chosen = scores.masked_fill(ended, -math.inf).topk(W)
        return parents.gather(1, chosen), words.gather(1, chosen)

    def keep(self, sentences: Tensor) -> None:
        self.numbers, self.limits = self.numbers[sentences], self.limits[sentences]
        self.totals, self.finished, self.ends = self.totals[sentences], self.finished[sentences], self.ends[sentences]


def _best(log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The best words of each row and their log-probabilities, (N, count) both; -inf and PAD beyond the vocabulary."""
    V = log_probs.shape[1]
    values, words = log_probs.topk(min(count, V))
    if count > V:
        values, words = pad(values, (0, count - V), value=-math.inf), pad(words, (0, count - V), value=PAD)
    return values, words


@register("decoder", "beam", BeamOptions)
class Beam(Decoder):
    """Beam search with a length penalty; stops when no better hypothesis is possible."""

    def __init__(self, options: BeamOptions) -> None:
        self.options = options
        self.n_best = options.n_best

    @property
    def signature(self) -> str:
        return signature("beam", self.options)

    @torch.inference_mode()
    def search(self, scorer: Scorer, source: Tensor) -> list[list[Hypothesis]]:
        """See Decoder; n_best hypotheses a sentence, fewer where there are not so many.

        A hypothesis that is as long as it may be is made to end, and the log-probability of its EOS counts.
        """
        options, device = self.options, source.device
        limits, B, W = options.limits(source), len(source), options.beam_size
        beams = _Beams.start(limits, W, device)
        divisors = torch.tensor([options.divisor(length) for length in range(max(limits) + 2)], device=device)
        trail = torch.zeros((max(limits) + 1, B, W), dtype=torch.int64, device=device)  # parent * V + word
        finished, ends = torch.empty_like(beams.finished), torch.empty_like(beams.ends)
        state = scorer.start(source)
        tokens = torch.full((B,), BOS, device=device)
        for step in range(1, max(limits) + 2):
            log_probs, state = scorer.step(tokens, state)
            V, rows = log_probs.shape[1], len(log_probs) // len(beams.numbers)
            forbid(log_probs, step, options.min_length)
            if step > min(limits):
                force_end(log_probs, (beams.limits < step).repeat_interleave(rows))
            parents, words = beams.advance(log_probs, step, options.divisor(step))
            trail[step - 1].index_copy_(0, beams.numbers, parents * V + words)
            parents += torch.arange(len(parents), device=device)[:, None] * rows  # as rows of the state
            done = beams.finished[:, self.n_best - 1] >= self._bound(beams, divisors)
            stay = staying(done.tolist())  # the one wait for the device in a step
            if stay == []:
                break
            if stay is None:
                state.reorder(parents.flatten())
            else:
                finished[beams.numbers], ends[beams.numbers] = beams.finished, beams.ends
                sentences = torch.tensor(stay, device=device)
                beams.keep(sentences)
                parents, words = parents[sentences], words[sentences]
                state.keep(sentences, parents.flatten())
            tokens = words.flatten()
        finished[beams.numbers], ends[beams.numbers] = beams.finished, beams.ends
        return self._hypotheses(finished, ends, trail, V)

    def _bound(self, beams: _Beams, divisors: Tensor) -> Tensor:
        """(B,) the best score that any live hypothesis can reach: no word makes a log-probability greater, and no
        penalty is weaker than that of the greatest length."""
        return beams.totals[:, 0] / divisors[beams.limits + 1]

    def _hypotheses(self, finished: Tensor, ends: Tensor, trail: Tensor, V: int) -> list[list[Hypothesis]]:
        """Read the finished hypotheses back from their ends. finished, ends: (B, W); trail: (T, B, W)"""
        scores = finished[:, : self.n_best].cpu().numpy()
        lengths, places = np.divmod(ends[:, : self.n_best].cpu().numpy(), ends.shape[1])
        longest = int(lengths.max(initial=0))
        steps = trail[:longest].cpu().numpy()
        tokens = np.zeros((*scores.shape, longest), np.int64)  # B n_best T
        sentences = np.arange(len(scores))[:, None]
        for step in reversed(range(longest)):
            inside = step < lengths
            parents, words = np.divmod(steps[step][sentences, places], V)
            tokens[:, :, step] = words
            places = np.where(inside, parents, places)
        return [
            [
                Hypothesis(row[:length].tolist(), float(score) * self.options.divisor(int(length) + 1), float(score))
                for row, length, score in zip(*sentence, strict=True)
                if score != -math.inf
            ]
            or [Hypothesis([], -math.inf, -math.inf)]
            for sentence in zip(tokens, lengths, scores, strict=True)
        ]
