"""Gated linear units (Shazeer, 2020) as a feed-forward network."""

from torch import Tensor, nn

from nmt import register
from nmt.feed_forwards.base import ACTIVATIONS, FeedForward, FeedForwardShape
from nmt.nn.dropout import dropout
from nmt.nn.linear import Linear, Projection
from nmt.options import NoOptions


@register("ffn", "glu", NoOptions)
class GatedFeedForward(FeedForward):
    """(f(x W) * x V) W2 without biases (Shazeer, 2020): SwiGLU if f is swish, GEGLU if it is gelu.

    inner: W and V, joined in one matrix
    """

    residual_outputs = ("outer*",)

    def __init__(self, options: object, shape: FeedForwardShape) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[shape.activation]
        self.inner = Linear(shape.width, 2 * shape.inner, bias=False)
        self.outer = Linear(shape.inner, shape.width, bias=False)
        self.dropout = shape.dropout
        for weight in (*self.inner.weight.chunk(2), self.outer.weight):
            nn.init.xavier_uniform_(weight)

    def forward(self, states: Tensor) -> Tensor:
        """(..., D) -> (..., D)"""
        gates, values = self.inner(states).chunk(2, -1)
        outer: Tensor = self.outer(dropout(self.activation(gates) * values, self.dropout, self.training))
        return outer

    def search_step(self) -> Projection:
        """A version of `forward` for one search: (N, D), without gradient."""
        inner, outer, activation = self.inner.search_step(), self.outer.search_step(), self.activation

        def product(states: Tensor) -> Tensor:
            gates, values = inner(states).chunk(2, -1)
            return outer(activation(gates) * values)

        return product
