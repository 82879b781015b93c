"""What every decoder is: a search for good translations over a Scorer, in batches, with the same result alone.

Dimensions: B sentences, S source positions, W hypotheses a sentence, N = B * W rows, V vocabulary, T steps.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from nmt.models.base import Scorer
from nmt.options import as_dict, opt
from nmt.symbols import BOS, EOS, PAD

LEAVE_TOGETHER: Final = 8  # finished sentences leave once they are an eighth of the batch: leaving copies what stays


@dataclass(frozen=True)
class Hypothesis:
    """A translation that a search found.

    tokens: ids without BOS and EOS
    log_prob: natural log-probability of tokens and EOS under the Scorer
    score: what the search ranks by: log_prob after its length penalty
    """

    tokens: list[int]
    log_prob: float
    score: float


class Decoder(ABC):
    """A search. A registered decoder is built as `cls(options)`.

    n_best: how many hypotheses a sentence it is asked for
    """

    n_best: int = 1

    @abstractmethod
    def search(self, scorer: Scorer, source: Tensor) -> list[list[Hypothesis]]:
        """For each row of source (B, S): the hypotheses found, best first, at least one.

        Each row has a token, EOS, then PAD. The log-probabilities that `scorer.step` returns belong to the search,
        which may write into them.
        """

    @property
    def signature(self) -> str:
        """The search and its settings, as printed beside a score."""
        return type(self).__name__.lower()


@dataclass(frozen=True, kw_only=True)
class LengthOptions:
    """The options of searches that bound the length of what they find."""

    max_len_a: float = opt(1.0, "a translation has at most a * source + b tokens, EOS not counted on either side")
    max_len_b: int = opt(50, "b of a * source + b; a translation as long as that is ended there; 50 in the paper")
    min_length: int = opt(1, "tokens that a translation has at least, EOS not counted")

    def __post_init__(self) -> None:
        for name in ("max_len_a", "max_len_b", "min_length"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")

    def limits(self, source: Tensor) -> list[int]:
        """The most tokens of a translation of each row of source (B, S); never less than min_length."""
        lengths = ((source != PAD).sum(1) - 1).tolist()  # without EOS
        return [max(self.min_length, int(self.max_len_a * length + self.max_len_b)) for length in lengths]


def signature(name: str, options: Any) -> str:
    """A decoder's signature: its name and every option, as "beam|beam_size:4|alpha:0.6"."""
    return "|".join([name, *(f"{key}:{value}" for key, value in as_dict(options).items())])


def forbid(log_probs: Tensor, step: int, min_length: int) -> None:
    """Take away what no translation may hold: PAD, BOS, and EOS before it is long enough.

    log_probs: (N, V), written into; step: which token is being chosen, counted from 1
    """
    log_probs[:, PAD] = -math.inf
    log_probs[:, BOS] = -math.inf
    if step <= min_length:
        log_probs[:, EOS] = -math.inf


def staying(done: list[bool]) -> list[int] | None:
    """The sentences that stay when those that are done leave; None while too few are done to be worth it."""
    if sum(done) * LEAVE_TOGETHER < max(len(done), 1):
        return None
    return [i for i, finished in enumerate(done) if not finished]


Choose = Callable[[Tensor, Tensor, int], Tensor]


@torch.inference_mode()
def follow(scorer: Scorer, source: Tensor, copies: int, options: LengthOptions, choose: Choose) -> list[Hypothesis]:
    """Say a word at a time, never looking back: `copies` paths (W) for each row of source (B, S), together.

    choose: (log_probs (N, V), rows (N,) each in 0..B*W-1, step from 1) -> tokens (N,)
    returns: B * W hypotheses, each scored by its log-probability; one that is as long as it may be is made to end
    """
    limits, device, W = options.limits(source), source.device, copies
    longest = max(limits)
    rows = torch.arange(len(limits) * W, device=device)  # the paths still followed
    limit = torch.tensor(limits, device=device).repeat_interleave(W)
    said = torch.full((len(rows), longest + 1), EOS, device=device)
    log_probs_said = torch.zeros((len(rows), longest + 1), device=device)
    ended = torch.zeros_like(rows, dtype=torch.bool)
    tokens = torch.full_like(rows, BOS)
    state = scorer.start(source)
    if W > 1:
        state.reorder(rows // W)
    for step in range(1, longest + 2):
        log_probs, state = scorer.step(tokens, state)
        forbid(log_probs, step, options.min_length)
        tokens = choose(log_probs, rows, step).masked_fill(ended | (limit < step), EOS)
        log_prob = log_probs.gather(1, tokens[:, None]).squeeze(1)
        said[rows, step - 1] = tokens
        log_probs_said[rows, step - 1] = log_prob.masked_fill(ended, 0.0)
        ended = ended | (tokens == EOS)
        stay = staying(ended.view(-1, W).all(1).tolist())
        if stay == []:
            break
        if stay is not None:
            sentences = torch.tensor(stay, device=device)
            places = (sentences[:, None] * W + torch.arange(W, device=device)).flatten()
            state.keep(sentences, places)
            rows, limit, ended, tokens = rows[places], limit[places], ended[places], tokens[places]
    sums = log_probs_said.double().sum(1).tolist()
    return [
        Hypothesis(words[: words.index(EOS)], total, total) for words, total in zip(said.tolist(), sums, strict=True)
    ]
