"""The paper's position-wise feed-forward network (Vaswani et al., 2017, section 3.3)."""

import torch
from torch import Tensor, nn

from nmt import register
from nmt.feed_forwards.base import ACTIVATIONS, FeedForward, FeedForwardShape
from nmt.nn.dropout import dropout
from nmt.nn.linear import Linear, Projection
from nmt.options import NoOptions


@register("ffn", "dense", NoOptions)
class DenseFeedForward(FeedForward):
    """max(0, x W1 + b1) W2 + b2, equation 2, or the same with a different activation."""

    residual_outputs = ("outer*",)

    def __init__(self, options: object, shape: FeedForwardShape) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[shape.activation]
        self.inner = Linear(shape.width, shape.inner)
        self.outer = Linear(shape.inner, shape.width)
        self.dropout = shape.dropout
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, states: Tensor) -> Tensor:
        """(..., D) -> (..., D)"""
        activations = self.activation(self.inner(states))
        outer: Tensor = self.outer(dropout(activations, self.dropout, self.training))
        return outer

    def search_step(self) -> Projection:
        """See FeedForward."""
        inner, outer, activation = self.inner.search_step(), self.outer.search_step(), self.activation
        if activation is torch.relu:
            return lambda states: outer(inner(states).relu_())
        return lambda states: outer(activation(inner(states)))
