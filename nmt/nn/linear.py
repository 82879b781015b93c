"""Linear layers by the implementation of matrix products that is in use (nmt.nn.matmul)."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from nmt.nn import matmul

Projection = Callable[[Tensor], Tensor]
"""(N, D) -> (N, E): a linear map with a fixed weight, or a layer prepared for one search."""


class Linear(nn.Linear):
    """nn.Linear by the implementation in use: states (..., D) -> (..., E), with the same weights and names.

    is_recurrent: whether its input is an output of the same layers at the step before; modules that loop over steps say so too
    """

    is_recurrent: bool = False

    def forward(self, states: Tensor) -> Tensor:
        return matmul.product(states, self.weight, self.bias)

    def prepared(self) -> Projection:
        """`forward` of (N, D) for one search, without gradient: weights and implementation are looked up once."""
        return matmul.prepared_product(self.weight.detach(), None if self.bias is None else self.bias.detach())

    def rows(self, rows: Tensor) -> "Linear":
        """A layer that computes only some outputs. rows: (E',) their numbers"""
        return Linear.of(self.weight[rows], None if self.bias is None else self.bias[rows])

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None) -> "Linear":
        """A layer with given weights, without gradient. weight: (E, D); bias: (E,) or None"""
        with torch.device("meta"):
            layer = cls(weight.shape[1], len(weight), bias=bias is not None)
        layer.weight = nn.Parameter(weight, requires_grad=False)
        if bias is not None:
            layer.bias = nn.Parameter(bias, requires_grad=False)
        return layer


class ClippedLinear(nn.Module):
    """A linear layer whose outputs are clipped to [-limit, limit]."""

    def __init__(self, linear: Linear, limit: float) -> None:
        super().__init__()
        self.linear, self.limit = linear, limit

    def forward(self, states: Tensor) -> Tensor:
        outputs: Tensor = self.linear(states)
        return outputs if self.limit == math.inf else outputs.clamp(-self.limit, self.limit)

    def prepared(self) -> Projection:
        """`forward` of (N, D) for one search, without gradient."""
        product = self.linear.prepared()
        return product if self.limit == math.inf else lambda states: product(states).clamp_(-self.limit, self.limit)

    def rows(self, rows: Tensor) -> "ClippedLinear":
        """A layer that computes only some outputs. rows: (E',) their numbers"""
        return ClippedLinear(self.linear.rows(rows), self.limit)


def prepared(layer: nn.Module) -> Projection:
    """A layer for one search: its `prepared()`, if it has that, or itself."""
    own: Callable[[], Projection] = getattr(layer, "prepared", lambda: layer)
    return own()


def remove_weight_norm(model: nn.Module) -> None:
    """Replace each weight that is a gain times a direction (Salimans and Kingma, 2016) by the product, for a search."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight")
