"""Position encodings (Vaswani et al., 2017, section 3.5), relative (Shaw et al., 2018) and rotary ones (Su et al., 2021).

Dimensions: B sentences, T queries, D width, H heads, K and V width of a head's keys and values; in a search W hypotheses
per sentence and E entries of a cache.
"""

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

INITIAL_POSITIONS: Final = 256  # of a table of sinusoids


def sinusoids(length: int, width: int, form: str) -> Tensor:
    """A table of position encodings, (length, width) float32.

    form: "sinusoidal", the paper's PE(p, 2i) = sin(p / 10000^(2i/d)) and PE(p, 2i+1) = cos(p / 10000^(2i/d)); or
        "t2t-sinusoidal", the reference code's halves [sin | cos] with the exponent i / (d/2 - 1)
    """
    if torch.get_default_device().type == "meta":
        return torch.empty(length, width)  # only the shape counts, and arange would make torch import its compiler
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


class NoPositions(nn.Module):
    """Nothing to add to embeddings, for a model with relative or rotary positions."""

    def forward(self, start: int, length: int) -> float:
        return 0.0


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


@dataclass(frozen=True)
class RelativeShape:
    """The sizes of relative positions.

    distance: k, at which distances are clipped
    separate: whether each head has vectors of its own
    values: whether values have vectors too, or keys alone
    """

    distance: int
    separate: bool
    values: bool


class RelativePositions(nn.Module):
    """Vectors of distances from a query to a key, clipped to -k ... k (Shaw et al., 2018, section 3.2).

    keys: (2k + 1, K), or (H, 2k + 1, K) with separate heads; row k + d is added to the key j of the query i = j - d
    values: the same with V for K, added to values; or None
    """

    values: nn.Parameter | None

    def __init__(self, shape: RelativeShape, heads: int, keys: int, values: int) -> None:
        super().__init__()
        self.distance = shape.distance
        tables = (heads,) if shape.separate else ()
        self.keys = nn.Parameter(_glorot(*tables, 2 * shape.distance + 1, keys))
        self.values = nn.Parameter(_glorot(*tables, 2 * shape.distance + 1, values)) if shape.values else None

    def scores(self, queries: Tensor) -> Tensor:
        """The terms of the keys' vectors in all scores: (B, H, T, T). queries: (B, H, T, K)

        A query is multiplied by 2k + 1 vectors, whatever T (section 3.3 multiplies by T).
        """
        T, n = queries.shape[2], min(self.distance, queries.shape[2])
        products = _product(queries * queries.shape[3] ** -0.5, self._nearest(self.keys, n).mT)  # B H T 2n+1
        first, last = (ends.expand(-1, -1, -1, T - n) for ends in (products[..., :1], products[..., -1:]))
        by_distance = torch.cat([first, products, last], -1)  # B H T 2T+1, of the distances -T ... T
        # Row i begins at distance -i: each row is read one place earlier than the one before it.
        skewed: Tensor = by_distance.flatten(2)[..., T:].unflatten(-1, (T, 2 * T))
        return skewed[..., :T]

    def sums(self, weights: Tensor) -> Tensor:
        """The terms of the values' vectors in all weighted sums: (B, H, T, V). weights: (B, H, T, T)"""
        assert self.values is not None
        T, n = weights.shape[2], min(self.distance, weights.shape[2])
        by_distance = pad(pad(weights, (0, T)).flatten(2), (T, 0)).unflatten(-1, (T, 2 * T + 1))  # as in `scores`
        first = by_distance[..., : T - n + 1].sum(-1, keepdim=True)
        last = by_distance[..., T + n :].sum(-1, keepdim=True)
        nearest = torch.cat([first, by_distance[..., T - n + 1 : T + n], last], -1)  # B H T 2n+1
        return _product(nearest, self._nearest(self.values, n))

    def past_scores(self, queries: Tensor, ages: Tensor) -> Tensor:
        """`scores` of one position of a search: (B, H, W, E).

        queries: (B, H, W, K); ages: (E,) int64, how many positions before the queries each entry stands
        """
        return _product(queries * queries.shape[3] ** -0.5, self._of_ages(self.keys, ages).mT)

    def past_sums(self, weights: Tensor, ages: Tensor) -> Tensor:
        """`sums` of one position of a search: (B, H, W, V). weights: (B, H, W, E); ages: see `past_scores`"""
        assert self.values is not None
        return _product(weights, self._of_ages(self.values, ages))

    def flops(self, length: Tensor, heads: int) -> Tensor:
        """FLOPs of `scores` and `sums` of sentences: (N,) int64. length: (N,) int64"""
        widths = self.keys.shape[-1] + (0 if self.values is None else self.values.shape[-1])
        return 2 * heads * widths * length * (2 * length.clamp(max=self.distance) + 1)

    def _nearest(self, table: Tensor, n: int) -> Tensor:
        """The vectors of the distances -n ... n."""
        return table.narrow(-2, self.distance - n, 2 * n + 1)

    def _of_ages(self, table: Tensor, ages: Tensor) -> Tensor:
        return table.detach().index_select(-2, self.distance - ages.clamp(max=self.distance))


def _glorot(*shape: int) -> Tensor:
    """A table (..., R, K), its matrices (R, K) each drawn by itself."""
    table = torch.empty(shape)
    for matrix in table.view(-1, *shape[-2:]):
        nn.init.xavier_uniform_(matrix)
    return table


def _product(vectors: Tensor, table: Tensor) -> Tensor:
    """(B, H, T, X) times (X, Y), or times (H, X, Y) by head: (B, H, T, Y)"""
    return torch.einsum("bhtx,hxy->bhty" if table.dim() == 3 else "bhtx,xy->bhty", vectors, table)
