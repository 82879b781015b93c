"""Linear layers that use the current implementation of matrix products (nmt.nn.matmul)."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from nmt.nn import matmul

Projection = Callable[[Tensor], Tensor]
"""(N, D) -> (N, E): a linear map with a fixed weight, or the step of a layer during one search."""


class Linear(nn.Linear):
    """nn.Linear with the current implementation of products: states (..., D) -> (..., E), with the same weights and names.

    is_recurrent: whether the layer's input depends on its own previous output; modules that loop over steps declare it too
    """

    is_recurrent: bool = False

    def forward(self, states: Tensor) -> Tensor:
        return matmul.product(states, self.weight, self.bias)

    def search_step(self) -> Projection:
        """The function that computes `forward` for (N, D) during one search, without gradients. It looks up the weights once."""
        return matmul.fixed_product(self.weight.detach(), None if self.bias is None else self.bias.detach())

    def rows(self, rows: Tensor) -> "Linear":
        """A layer that computes only some of the outputs. rows: (E',) indices of these outputs"""
        return Linear.of(self.weight[rows], None if self.bias is None else self.bias[rows])

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None) -> "Linear":
        """Make a layer from weights, without gradients. weight: (E, D); bias: (E,) or None"""
        with torch.device("meta"):
            layer = cls(weight.shape[1], len(weight), bias=bias is not None)
        layer.weight = nn.Parameter(weight, requires_grad=False)
        if bias is not None:
            layer.bias = nn.Parameter(bias, requires_grad=False)
        return layer


class ClippedLinear(nn.Module):
    """A linear layer that clips its outputs to [-limit, limit]."""

    def __init__(self, linear: Linear, limit: float) -> None:
        super().__init__()
        self.linear, self.limit = linear, limit

    def forward(self, states: Tensor) -> Tensor:
        outputs: Tensor = self.linear(states)
        return outputs if self.limit == math.inf else outputs.clamp(-self.limit, self.limit)

    def search_step(self) -> Projection:
        """The function that computes `forward` for (N, D) during one search, without gradients."""
        product = self.linear.search_step()
        return product if self.limit == math.inf else lambda states: product(states).clamp_(-self.limit, self.limit)

    def rows(self, rows: Tensor) -> "ClippedLinear":
        """A layer that computes only some of the outputs. rows: (E',) indices of these outputs"""
        return ClippedLinear(self.linear.rows(rows), self.limit)


def step_of(layer: nn.Module) -> Projection:
    """The function that computes a layer during one search: its `search_step()`, or the layer itself if it has none."""
    search_step: Callable[[], Projection] = getattr(layer, "search_step", lambda: layer)
    return search_step()


def remove_weight_norm(model: nn.Module) -> None:
    """Replace each weight-normalised weight (Salimans and Kingma, 2016) with the product of its gain and direction."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight")
