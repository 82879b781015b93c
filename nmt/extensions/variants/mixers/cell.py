"""The base class of mixers that store the past in one vector per hypothesis, called its cell."""

import torch
from torch import Tensor

from nmt.mixers.base import FirstPast, Mixer


class CellMixer(Mixer):
    """A mixer that stores the past in a cell (N, D), initially zero. The context of its step is the number of past positions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def begin(self, memory: Tensor, dtype: torch.dtype) -> FirstPast:
        """See Mixer."""
        return FirstPast({}, {"cell": memory.new_zeros(len(memory), self.width)})

    def state_numbers(self, length: int) -> int:
        """See Mixer: the cell."""
        return self.width
