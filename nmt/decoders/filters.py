"""Filters of a search: which words may come next."""

import math

import torch
from torch import Tensor

from nmt.symbols import EOS


def force_end(log_probs: Tensor, rows: Tensor) -> None:
    """Leave nothing but EOS, with its own log-probability, to the rows that have reached their length.

    log_probs: (N, V), written into; rows: (N,) bool
    """
    end = log_probs[:, EOS].clone()
    log_probs.masked_fill_(rows[:, None], -math.inf)
    log_probs[:, EOS] = end


def top_p(log_probs: Tensor, p: float) -> Tensor:
    """Keep the smallest set of words that has probability p or more (Holtzman et al., 2020); the others get -inf.

    log_probs: (N, K), of any scale, the greatest first; the first is always kept
    """
    probabilities = torch.softmax(log_probs, 1)
    before = probabilities.cumsum(1) - probabilities
    return log_probs.masked_fill(before >= p, -math.inf)
