"""The interface of feed-forward networks (Vaswani et al., 2017, section 3.3): what a layer does with each position by itself.

A registered network is built as `cls(options, shape)`, by `for_layer`. options: of the Transformer, which are an object of the
class that the network was registered with too.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import torch
from torch import Tensor, nn

from nmt.nn.linear import Projection

ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "relu": torch.relu,  # the paper
    "swish": nn.functional.silu,  # Ramachandran et al., 2017, with beta 1
    "gelu": nn.functional.gelu,  # Hendrycks and Gimpel, 2016
}


class FeedForwardShape(NamedTuple):
    """The sizes of a feed-forward network.

    width: D; inner: of its hidden layer; dropout: probability, on the inner activations; activation: a name in ACTIVATIONS
    """

    width: int
    inner: int
    dropout: float
    activation: str = "relu"


class FeedForward(nn.Module):
    """A function of each position by itself, in a layer of the Transformer.

    auxiliary_losses: names of the losses that it adds to each pass, see nmt.nn.extra_losses
    can_be_captured: whether its work depends on the sizes of its input alone, so that a CUDA graph can repeat it
    residual_outputs: patterns of its weights that are zero in a layer that changes nothing; none if there are no such
    training_options: names of its options that only training reads
    """

    auxiliary_losses: Sequence[str] = ()
    can_be_captured: ClassVar[bool] = True
    residual_outputs: ClassVar[Sequence[str]] = ()
    training_options: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def for_layer(cls, options: Any, shape: FeedForwardShape, number: int) -> "FeedForward":
        """The network of a layer, by default a new one. number: from 1"""
        network: FeedForward = cls(options, shape)
        return network

    @abstractmethod
    def forward(self, states: Tensor) -> Tensor:
        """states: (..., D) -> (..., D)"""

    @abstractmethod
    def prepared(self) -> Projection:
        """`forward` of (N, D) for one search, without gradient."""
