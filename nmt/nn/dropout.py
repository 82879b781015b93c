"""Dropout (Srivastava et al., 2014), with draws that a processor makes quickly."""

import torch
from torch import Tensor
from torch.nn import functional

LEVELS = 1 << 16  # of a draw


def dropout(states: Tensor, probability: float, training: bool) -> Tensor:
    """Each number is 0 with this probability, to 1 / 65,536, and is divided by the probability to be kept else.

    While training only. Raises ValueError unless 0 <= probability < 1. On processors that are not Intel's torch draws a
    double-precision number for each, one after the other: a tenth of the time of training a small model. Here four are drawn
    at once, from the same generator.
    """
    if not 0 <= probability < 1:
        raise ValueError(f"dropout is {probability}; it must be at least 0 and below 1")
    if not training or not probability:
        return states
    if states.device.type != "cpu" or torch.compiler.is_compiling():
        return functional.dropout(states, probability)
    return states * _kept(states.shape, probability, states.dtype)


def _kept(shape: torch.Size, probability: float, dtype: torch.dtype) -> Tensor:
    """0 where a number is dropped, and where it is kept what it is multiplied by: its mean is 1."""
    dropped = min(round(probability * LEVELS), LEVELS - 1)
    draws = torch.empty(-(-shape.numel() // 4), dtype=torch.int64, device="cpu").random_(-(2**63), None)
    kept = draws.view(torch.int16)[: shape.numel()].ge_(dropped - LEVELS // 2)
    return kept.to(dtype).mul_(LEVELS / (LEVELS - dropped)).view(shape)
