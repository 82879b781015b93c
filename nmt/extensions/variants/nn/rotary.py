"""Rotary positions (Su et al., 2021): queries and keys turned by angles that grow with their positions.

Dimensions: T positions, K width of a head's queries and keys.
"""

import math

import torch
from torch import Tensor


def rotations(start: int, length: int, width: int, device: torch.device) -> Tensor:
    """Cosines and sines of the angles by which rotary positions turn pairs of numbers: (length, 2, K/2) float32.

    The pair i of the position p turns by p / 10000^(2i/K) (Su et al., 2021, equation 15).
    start: the first position; width: K, even
    """
    exponents = torch.arange(0, width, 2, dtype=torch.float64, device=device) / width  # K/2
    positions = torch.arange(start, start + length, dtype=torch.float64, device=device)
    angles = positions[:, None] * torch.exp(-math.log(10000.0) * exponents)  # length K/2
    return torch.stack([angles.cos(), angles.sin()], 1).float()


def rotated(vectors: Tensor, rotations: Tensor) -> Tensor:
    """Queries or keys, (..., T, K), turned by `rotations`, (T, 2, K/2): the product of two depends on their distance alone.

    A pair is (i, i + K/2). In the paper it is (2i, 2i + 1), which is the same with the projections' rows in another order.
    """
    cosines, sines = rotations.unbind(1)  # T K/2
    first, second = vectors.chunk(2, -1)  # ... T K/2
    turned = torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)  # ... T K
    return turned.to(vectors.dtype)
