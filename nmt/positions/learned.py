"""Learned position embeddings (Vaswani et al., 2017, Table 3, row E)."""

import torch
from torch import Tensor, nn

from nmt import register
from nmt.positions.base import PositionEncoding
from nmt.positions.options import LearnedPositionOptions


@register("positions", "learned", LearnedPositionOptions)
class LearnedPositions(PositionEncoding):
    """A trained vector for each position (Table 3, row E). Positions beyond the last one share its vector."""

    def __init__(self, options: LearnedPositionOptions, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(options.max_positions, width))
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, start: int, length: int) -> Tensor:
        """The vectors of the positions start, start + 1, ...: (length, D)"""
        last = len(self.weight) - 1
        if start + length - 1 <= last:
            return self.weight[start : start + length]
        return self.weight[torch.arange(start, start + length, device=self.weight.device).clamp(max=last)]
