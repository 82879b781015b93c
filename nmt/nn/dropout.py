"""Dropout (Srivastava et al., 2014), with draws that a processor makes quickly."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

VALUES = 1 << 16  # of a draw


def dropout(states: Tensor, probability: float, training: bool) -> Tensor:
    """Each number is 0 with this probability, to 1 / 65,536, and is divided by the probability to be kept else.

    While training only. torch draws a double-precision number for each on most processors, one after the other: a tenth of
    the time of training a small model. Here a draw is 16 bits of a generator that torch's own seeds.
    """
    if not training or not probability:
        return states
    if states.device.type != "cpu" or torch.compiler.is_compiling():
        return functional.dropout(states, probability)
    return states * _kept(states.shape, probability, states.dtype)


def _kept(shape: torch.Size, probability: float, dtype: torch.dtype) -> Tensor:
    """0 where a number is dropped, and where it is kept what it is multiplied by: its mean is 1."""
    dropped = min(round(probability * VALUES), VALUES - 1)
    generator = np.random.SFC64(int(torch.randint(1 << 62, ())))
    draws = torch.from_numpy(generator.random_raw(-(-shape.numel() // 4)).view(np.int16))[: shape.numel()]
    return draws.ge_(dropped - VALUES // 2).to(dtype).mul_(VALUES / (VALUES - dropped)).view(shape)
