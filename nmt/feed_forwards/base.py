"""The interface of feed-forward networks, which a layer applies to each position separately (Vaswani et al., 2017, section 3.3).

A registered network is built by `for_layer` as `cls(options, shape)`. `options` is the Transformer's options object, also an
instance of the network's options class.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import torch
from torch import Tensor, nn

from nmt.nn.linear import Projection

ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "relu": torch.relu,  # as in the paper
    "swish": nn.functional.silu,  # Ramachandran et al., 2017, with beta 1
    "gelu": nn.functional.gelu,  # Hendrycks and Gimpel, 2016
}


class FeedForwardShape(NamedTuple):
    """The sizes of a feed-forward network.

    width: D
    inner: width of its hidden layer
    dropout: probability of dropout on the hidden activations
    activation: a name in ACTIVATIONS
    """

    width: int
    inner: int
    dropout: float
    activation: str = "relu"


class FeedForward(nn.Module):
    """A network that a layer of the Transformer applies to each position separately.

    auxiliary_losses: names of the losses that it adds to each pass (see nmt.nn.extra_losses)
    can_be_captured: whether its work depends only on the sizes of its input, so that a CUDA graph can repeat it
    residual_outputs: name patterns of its last weights; a layer with zeros there leaves its input unchanged. Empty if it has none
    training_options: names of its options that only training reads
    """

    auxiliary_losses: Sequence[str] = ()
    can_be_captured: ClassVar[bool] = True
    residual_outputs: ClassVar[Sequence[str]] = ()
    training_options: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def for_layer(cls, options: Any, shape: FeedForwardShape, number: int) -> "FeedForward":
        """The network of a layer, by default a new one. number: number of the layer, counted from 1"""
        network: FeedForward = cls(options, shape)
        return network

    @abstractmethod
    def forward(self, states: Tensor) -> Tensor:
        """states: (..., D) -> (..., D)"""

    @abstractmethod
    def search_step(self) -> Projection:
        """The function that computes `forward` for states (N, D) in one search, without gradients."""
