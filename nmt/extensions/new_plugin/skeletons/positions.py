"""Positions of the Transformer: a learned vector, multiplied by a number that grows by 1 every 100 positions.

nmt train --plugin my_positions.py --positions my-positions --data DATA --output RUN
nmt translate --plugin my_positions.py --model RUN --input TEXT
"""

from typing import Any

import torch
from torch import Tensor, nn

from nmt import options_class, register
from nmt.positions.base import PositionEncoding


@options_class
class MyPositionsOptions:  # CHANGE: options become flags; their names must differ from all options of the Transformer
    pass


@register("positions", "my-positions", MyPositionsOptions)
class MyPositions(PositionEncoding):
    """A learned direction, multiplied by the position."""

    def __init__(self, options: Any, width: int) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.zeros(width))
        nn.init.normal_(self.direction, std=width**-0.5)

    def forward(self, start: int, length: int) -> Tensor:
        """(length, D): what is added to the embeddings at positions start, start + 1, ..."""
        positions = torch.arange(start, start + length, device=self.direction.device)
        return positions[:, None] / 100 * self.direction  # CHANGE: the vectors
