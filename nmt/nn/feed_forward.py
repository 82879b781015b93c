"""The position-wise feed-forward network (Vaswani et al., 2017, section 3.3)."""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor, nn

from nmt.nn.dropout import dropout
from nmt.nn.linear import Linear, Projection
from nmt.nn.moe import Balance

ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "relu": torch.relu,  # the paper
    "swish": nn.functional.silu,  # Ramachandran et al., 2017, with beta 1
    "gelu": nn.functional.gelu,  # Hendrycks and Gimpel, 2016
}


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2, equation 2, with optional dropout on the inner activations.

    activation: in place of max(0, x), a name in ACTIVATIONS
    """

    def __init__(self, width: int, inner: int, dropout: float, activation: str = "relu") -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.inner = Linear(width, inner)
        self.outer = Linear(inner, width)
        self.dropout = dropout
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, states: Tensor, tokens: Tensor | None = None) -> tuple[Tensor, Balance]:
        """(..., D) -> (..., D) as MixtureOfExperts has it, with nothing to balance. tokens: without effect"""
        activations = self.activation(self.inner(states))
        outer: Tensor = self.outer(dropout(activations, self.dropout, self.training))
        return outer, Balance()

    def prepared(self) -> Projection:
        """`forward` of (N, D) for one search, without gradient."""
        inner, outer, activation = self.inner.prepared(), self.outer.prepared(), self.activation
        if activation is torch.relu:
            return lambda states: outer(inner(states).relu_())
        return lambda states: outer(activation(inner(states)))


class GatedFeedForward(nn.Module):
    """(f(x W) * x V) W2 without biases (Shazeer, 2020): SwiGLU if f is swish, GEGLU if it is gelu.

    inner: W and V in one matrix
    activation: f, a name in ACTIVATIONS
    """

    def __init__(self, width: int, inner: int, dropout: float, activation: str) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.inner = Linear(width, 2 * inner, bias=False)
        self.outer = Linear(inner, width, bias=False)
        self.dropout = dropout
        for weight in (*self.inner.weight.chunk(2), self.outer.weight):
            nn.init.xavier_uniform_(weight)

    def forward(self, states: Tensor, tokens: Tensor | None = None) -> tuple[Tensor, Balance]:
        """(..., D) -> (..., D); see FeedForward."""
        gates, values = self.inner(states).chunk(2, -1)
        outer: Tensor = self.outer(dropout(self.activation(gates) * values, self.dropout, self.training))
        return outer, Balance()

    def prepared(self) -> Projection:
        """`forward` of (N, D) for one search, without gradient."""
        inner, outer, activation = self.inner.prepared(), self.outer.prepared(), self.activation

        def product(states: Tensor) -> Tensor:
            gates, values = inner(states).chunk(2, -1)
            return outer(activation(gates) * values)

        return product
