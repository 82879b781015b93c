"""Rotary positions (Su et al., 2021): queries and keys are rotated by angles that grow with their positions.

Dimensions: T positions, K width of a head's queries and keys.
"""

import math

import torch
from torch import Tensor


def rotations(start: int, length: int, width: int, device: torch.device) -> Tensor:
    """Cosines and sines of the rotation angles: (length, 2, K/2) float32.

    Pair i at position p is rotated by p / 10000^(2i/K) (Su et al., 2021, equation 15).
    start: the first position; width: K, even
    """
    exponents = torch.arange(0, width, 2, dtype=torch.float64, device=device) / width  # K/2
    positions = torch.arange(start, start + length, dtype=torch.float64, device=device)
    angles = positions[:, None] * torch.exp(-math.log(10000.0) * exponents)  # length K/2
    return torch.stack([angles.cos(), angles.sin()], 1).float()


def rotated(vectors: Tensor, rotations: Tensor) -> Tensor:
    """Rotate queries or keys, (..., T, K), by `rotations`, (T, 2, K/2). Their products then depend only on distances.

    Pairs are (i, i + K/2). The paper's pairs (2i, 2i + 1) are equivalent, with the projections' rows in a different order.
    """
    cosines, sines = rotations.unbind(1)  # T K/2
    first, second = vectors.chunk(2, -1)  # ... T K/2
    turned = torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)  # ... T K
    return turned.to(vectors.dtype)
