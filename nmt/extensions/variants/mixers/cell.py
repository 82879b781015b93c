"""What mixers share that know the past as one vector of each hypothesis, its cell."""

import torch
from torch import Tensor

from nmt.mixers.base import FirstPast, Mixer


class CellMixer(Mixer):
    """A mixer whose past is a cell (N, D), zero at first. Its step's context is the number of positions before."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def begin(self, memory: Tensor, dtype: torch.dtype) -> FirstPast:
        """See Mixer."""
        return FirstPast({}, {"cell": memory.new_zeros(len(memory), self.width)})

    def state_numbers(self, length: int) -> int:
        """See Mixer: the cell."""
        return self.width
