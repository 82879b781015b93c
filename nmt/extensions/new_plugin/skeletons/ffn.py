"""A feed-forward network of the Transformer: squared ReLU (So et al., 2021, "Primer").

nmt train --plugin my_ffn.py --ffn my-ffn --data DATA --output RUN
nmt translate --plugin my_ffn.py --model RUN --input TEXT
"""

from typing import Any

from torch import Tensor

from nmt import options_class, register
from nmt.feed_forwards.base import FeedForward, FeedForwardShape
from nmt.nn.dropout import dropout
from nmt.nn.linear import Linear, Projection


@options_class
class MyFfnOptions:  # CHANGE: options become flags; their names must differ from all options of the Transformer
    pass


@register("ffn", "my-ffn", MyFfnOptions)
class MyFfn(FeedForward):
    """relu(x W1 + b1) ** 2 W2 + b2."""

    residual_outputs = ("outer*",)  # if these weights are zero, the layer changes nothing

    def __init__(self, options: Any, shape: FeedForwardShape) -> None:
        super().__init__()
        self.inner, self.outer = Linear(shape.width, shape.inner), Linear(shape.inner, shape.width)
        self.dropout = shape.dropout

    def forward(self, states: Tensor) -> Tensor:
        """Training: (..., D) to (..., D)."""
        hidden = self.inner(states).relu().square()  # CHANGE: the function, here and in `search_step`
        outputs: Tensor = self.outer(dropout(hidden, self.dropout, self.training))
        return outputs

    def search_step(self) -> Projection:
        """Search: returns the same function for (N, D), without gradients. The weights are looked up only once."""
        inner, outer = self.inner.search_step(), self.outer.search_step()
        return lambda states: outer(inner(states).relu().square())
