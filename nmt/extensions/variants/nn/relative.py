"""Relative positions (Shaw et al., 2018): vectors for the distance from a query to a key.

Dimensions: B sentences, T queries, H heads, K and V width of a head's keys and values; in a search, W hypotheses per sentence
and E entries of a cache.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad


@dataclass(frozen=True)
class RelativeShape:
    """The sizes of relative positions.

    distance: k, the maximum distance, to which longer ones are clipped
    separate: whether each head has its own vectors
    values: whether there are vectors for values too, not only for keys
    """

    distance: int
    separate: bool
    values: bool


class RelativePositions(nn.Module):
    """Vectors for the distances from a query to a key, clipped to -k ... k (Shaw et al., 2018, section 3.2).

    keys: (2k + 1, K), or (H, 2k + 1, K) with separate heads; row k + d is added to the key j for the query i = j - d
    values: the same with V instead of K, added to values; or None
    """

    values: nn.Parameter | None

    def __init__(self, shape: RelativeShape, heads: int, keys: int, values: int) -> None:
        super().__init__()
        self.distance = shape.distance
        tables = (heads,) if shape.separate else ()
        self.keys = nn.Parameter(_glorot(*tables, 2 * shape.distance + 1, keys))
        self.values = nn.Parameter(_glorot(*tables, 2 * shape.distance + 1, values)) if shape.values else None

    def scores(self, queries: Tensor) -> Tensor:
        """The contribution of the keys' vectors to all scores: (B, H, T, T). queries: (B, H, T, K)

        A query is multiplied by 2k + 1 vectors for any T (section 3.3 multiplies by T vectors).
        """
        T, n = queries.shape[2], min(self.distance, queries.shape[2])
        products = _product(queries * queries.shape[3] ** -0.5, self._nearest(self.keys, n).mT)  # B H T 2n+1
        first, last = (ends.expand(-1, -1, -1, T - n) for ends in (products[..., :1], products[..., -1:]))
        by_distance = torch.cat([first, products, last], -1)  # B H T 2T+1, for the distances -T ... T
        # Row i starts at distance -i, so each row is read one place before the previous one.
        skewed: Tensor = by_distance.flatten(2)[..., T:].unflatten(-1, (T, 2 * T))
        return skewed[..., :T]

    def sums(self, weights: Tensor) -> Tensor:
        """The contribution of the values' vectors to all weighted sums: (B, H, T, V). weights: (B, H, T, T)"""
        assert self.values is not None
        T, n = weights.shape[2], min(self.distance, weights.shape[2])
        by_distance = pad(pad(weights, (0, T)).flatten(2), (T, 0)).unflatten(-1, (T, 2 * T + 1))  # as in `scores`
        first = by_distance[..., : T - n + 1].sum(-1, keepdim=True)
        last = by_distance[..., T + n :].sum(-1, keepdim=True)
        nearest = torch.cat([first, by_distance[..., T - n + 1 : T + n], last], -1)  # B H T 2n+1
        return _product(nearest, self._nearest(self.values, n))

    def past_scores(self, queries: Tensor, ages: Tensor) -> Tensor:
        """Like `scores`, for one position of a search: (B, H, W, E).

        queries: (B, H, W, K)
        ages: (E,) int64, distance of each entry from the queries' position
        """
        return _product(queries * queries.shape[3] ** -0.5, self._of_ages(self.keys, ages).mT)

    def past_sums(self, weights: Tensor, ages: Tensor) -> Tensor:
        """Like `sums`, for one position of a search: (B, H, W, V). weights: (B, H, W, E); ages: see `past_scores`"""
        assert self.values is not None
        return _product(weights, self._of_ages(self.values, ages))

    def flops(self, length: Tensor, heads: int) -> Tensor:
        """FLOPs of `scores` and `sums` per sentence: (N,) int64. length: (N,) int64"""
        widths = self.keys.shape[-1] + (0 if self.values is None else self.values.shape[-1])
        return 2 * heads * widths * length * (2 * length.clamp(max=self.distance) + 1)

    def _nearest(self, table: Tensor, n: int) -> Tensor:
        """The vectors for the distances -n ... n."""
        return table.narrow(-2, self.distance - n, 2 * n + 1)

    def _of_ages(self, table: Tensor, ages: Tensor) -> Tensor:
        return table.detach().index_select(-2, self.distance - ages.clamp(max=self.distance))


def _glorot(*shape: int) -> Tensor:
    """A table (..., R, K) in which each matrix (R, K) is initialised separately."""
    table = torch.empty(shape)
    for matrix in table.view(-1, *shape[-2:]):
        nn.init.xavier_uniform_(matrix)
    return table


def _product(vectors: Tensor, table: Tensor) -> Tensor:
    """Multiply (B, H, T, X) by (X, Y), or by (H, X, Y) with one matrix per head: (B, H, T, Y)."""
    return torch.einsum("bhtx,hxy->bhty" if table.dim() == 3 else "bhtx,xy->bhty", vectors, table)
