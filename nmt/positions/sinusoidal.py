"""Sinusoidal position encodings (Vaswani et al., 2017, section 3.5), in the forms of the paper and of the reference code."""

import math
from typing import ClassVar, Final

import torch
from torch import Tensor

from nmt import register
from nmt.options import NoOptions
from nmt.positions.base import PositionEncoding

INITIAL_POSITIONS: Final = 256  # initial number of positions in the table of sinusoids


def sinusoids(length: int, width: int, form: str) -> Tensor:
    """A table of position encodings, (length, width) float32.

    form: "sinusoidal", the paper's PE(p, 2i) = sin(p / 10000^(2i/d)) and PE(p, 2i+1) = cos(p / 10000^(2i/d)); or
        "t2t-sinusoidal", the reference code's halves [sin | cos] with the exponent i / (d/2 - 1)
    """
    if torch.get_default_device().type == "meta":
        return torch.empty(length, width)  # only the shape matters, and arange would make torch import its compiler
    half = torch.arange(width // 2, dtype=torch.float64)
    exponent = 2 * half / width if form == "sinusoidal" else half / max(width // 2 - 1, 1)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * torch.exp(-math.log(10000.0) * exponent)  # length D/2
    parts = [angles.sin(), angles.cos()]
    table = torch.stack(parts, dim=-1).flatten(1) if form == "sinusoidal" else torch.cat(parts, dim=-1)
    return table.float()


@register("positions", "sinusoidal", NoOptions)
class SinusoidalPositions(PositionEncoding):
    """The paper's sinusoids, in a table that grows with the longest sentence."""

    form: ClassVar[str] = "sinusoidal"
    table: Tensor

    def __init__(self, options: object, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("table", sinusoids(INITIAL_POSITIONS, width, self.form), persistent=False)

    def forward(self, start: int, length: int) -> Tensor:
        """The vectors of the positions start, start + 1, ...: (length, D)"""
        table = self.table  # other threads may replace the table with a longer one
        if start + length > len(table):
            table = self.table = sinusoids(2 * (start + length), self.width, self.form).to(table.device)
        return table[start : start + length]


@register("positions", "t2t-sinusoidal", NoOptions)
class T2TSinusoidalPositions(SinusoidalPositions):
    """The form of sinusoids in the reference code and in fairseq: all sines, then all cosines."""

    form = "t2t-sinusoidal"
