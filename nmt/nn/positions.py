"""Position encodings (Vaswani et al., 2017, section 3.5): sinusoids, the reference code's variant, and learned vectors."""

import math
from typing import Final

import torch
from torch import Tensor, nn

INITIAL_POSITIONS: Final = 256  # of a table of sinusoids


def sinusoids(length: int, width: int, form: str) -> Tensor:
    """A table of position encodings, (length, width) float32.

    form: "sinusoidal", the paper's PE(p, 2i) = sin(p / 10000^(2i/d)) and PE(p, 2i+1) = cos(p / 10000^(2i/d)); or
        "t2t-sinusoidal", the reference code's halves [sin | cos] with the exponent i / (d/2 - 1)
    """
    half = torch.arange(width // 2, dtype=torch.float64)
    exponent = 2 * half / width if form == "sinusoidal" else half / max(width // 2 - 1, 1)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * torch.exp(-math.log(10000.0) * exponent)  # length D/2
    parts = [angles.sin(), angles.cos()]
    table = torch.stack(parts, dim=-1).flatten(1) if form == "sinusoidal" else torch.cat(parts, dim=-1)
    return table.float()


class SinusoidalPositions(nn.Module):
    """A fixed table of sinusoids, which grows with the longest sentence."""

    table: Tensor

    def __init__(self, width: int, form: str) -> None:
        super().__init__()
        self.width, self.form = width, form
        self.register_buffer("table", sinusoids(INITIAL_POSITIONS, width, form), persistent=False)

    def forward(self, start: int, length: int) -> Tensor:
        """(length, D) vectors of the positions start, start + 1, ..."""
        table = self.table  # other threads may replace it by a longer one
        if start + length > len(table):
            table = self.table = sinusoids(2 * (start + length), self.width, self.form).to(table.device)
        return table[start : start + length]


class LearnedPositions(nn.Module):
    """A trained vector for each position (Table 3, row E); positions after the last share its vector."""

    def __init__(self, width: int, positions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(positions, width))
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, start: int, length: int) -> Tensor:
        """(length, D) vectors of the positions start, start + 1, ..."""
        last = len(self.weight) - 1
        if start + length - 1 <= last:
            return self.weight[start : start + length]
        return self.weight[torch.arange(start, start + length, device=self.weight.device).clamp(max=last)]
