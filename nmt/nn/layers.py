"""The Transformer's layers (Vaswani et al., 2017, section 3.1), with norms after each sub-layer (the paper) or before.

Dimensions: B sentences, S source and T target positions, D width, H heads, N rows of a search.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from nmt.nn.attention import AttentionShape, CrossAttention, SelfAttention
from nmt.nn.average_attention import AverageAttention
from nmt.nn.dropout import dropout
from nmt.nn.feed_forward import FeedForward, GatedFeedForward
from nmt.nn.linear import Projection
from nmt.nn.moe import Balance, ExpertShape, MixtureOfExperts
from nmt.nn.ssru import SimplerRecurrence

EPSILON: Final = 1e-6  # of layer normalisation, as in the reference code
RESIDUAL_OUTPUTS: Final = ("*_attention.output.*", "*.feed_forward.outer*")  # weights that end the sub-layers


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + epsilon) * weight (Zhang and Sennrich, 2019), in the number format of the weight."""

    def forward(self, states: Tensor) -> Tensor:
        """(..., D) -> (..., D)"""
        return torch.rms_norm(states.to(self.weight.dtype), self.normalized_shape, self.weight, self.eps)


@dataclass(frozen=True)
class LayerShape:
    """The sizes of a Transformer layer.

    attention: of each attention; inner: width of the feed-forward network
    dropout: probability, on each sub-layer's output; activation_dropout: inside the feed-forward network
    pre_norm: whether each sub-layer's input is normalised instead of its output
    experts: of the mixture in place of the feed-forward network, if the layer has one
    activation: of the feed-forward network, a name in ACTIVATIONS
    norm: a name of `--norm`; epsilon: of it
    autoregression: what reads the positions before, a name of `--decoder-autoregression`
    gated: whether the feed-forward network has gated linear units
    """

    attention: AttentionShape
    inner: int
    dropout: float
    activation_dropout: float
    pre_norm: bool
    experts: ExpertShape | None = None
    activation: str = "relu"
    epsilon: float = EPSILON
    autoregression: str = "self-attention"
    norm: str = "layer"
    gated: bool = False

    def new_norm(self) -> nn.LayerNorm | RMSNorm:
        """A norm of states of the layer's width."""
        return (RMSNorm if self.norm == "rms" else nn.LayerNorm)(self.attention.width, eps=self.epsilon)

    def new_feed_forward(self) -> FeedForward | GatedFeedForward:
        """A feed-forward network without experts."""
        network = GatedFeedForward if self.gated else FeedForward
        return network(self.attention.width, self.inner, self.activation_dropout, self.activation)

    def layers(self, number: int, experts: ExpertShape | None, every: int) -> list["LayerShape"]:
        """The shapes of a stack of layers, of which every n-th has experts. every: n"""
        return [replace(self, experts=None if i % every else experts) for i in range(1, number + 1)]


def _prepared_norm(layer: nn.LayerNorm | RMSNorm) -> Projection:
    """The function of a norm for one search, without gradient."""
    if isinstance(layer, RMSNorm):
        return layer
    shape, epsilon = list(layer.normalized_shape), layer.eps
    weight, bias = layer.weight.detach(), layer.bias.detach()
    return lambda states: torch.layer_norm(states, shape, weight, bias, epsilon)


class Residual(nn.Module):
    """A residual connection and a norm around a sub-layer f: norm(x + dropout(f(x))), section 5.4.

    With pre_norm: x + dropout(f(norm(x))).
    """

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.norm = shape.new_norm()
        self.dropout = shape.dropout
        self.pre_norm = shape.pre_norm

    def forward(self, states: Tensor, sublayer: Projection) -> Tensor:
        """(..., D) -> (..., D)"""
        if self.pre_norm:
            return states + dropout(sublayer(self.norm(states)), self.dropout, self.training)
        normed: Tensor = self.norm(states + dropout(sublayer(states), self.dropout, self.training))
        return normed

    def prepared(self) -> tuple[Projection, Callable[[Tensor, Tensor], Tensor]]:
        """The functions (x -> input of f) and (x, f's output -> result) of (N, D) for one search, without gradient.

        The second writes into f's output, unless that has fewer bits: the sum has the type of x, as in training.
        """

        def add(states: Tensor, change: Tensor) -> Tensor:
            return change.add_(states) if change.dtype == states.dtype else states + change

        norm = _prepared_norm(self.norm)
        if self.pre_norm:
            return norm, add
        return lambda states: states, lambda states, change: norm(add(states, change))


LayerStep = Callable[..., tuple[Tensor, Any]]
"""(states, cache, used, bias, positions, memory, padding_bias) -> (N, D), and the cache: a causal layer at the next position.

states, cache, used, bias, positions: see SelfAttentionStep; of a layer without self-attention CellStep
memory, padding_bias: see CrossAttentionStep; of a layer that attends to a memory
"""


class _Layer(nn.Module):
    """The base of a layer: self-attention, attention to a memory if it has one, a feed-forward network or experts.

    self_attention: or what stands in its place
    """

    attends_to_memory = False
    self_attention: SelfAttention | SimplerRecurrence | AverageAttention

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        if shape.autoregression == "ssru":
            self.self_attention = SimplerRecurrence(shape.attention.width)
        elif shape.autoregression == "average-attention":
            self.self_attention = AverageAttention(shape.new_feed_forward(), shape.attention.width)
        else:
            self.self_attention = SelfAttention(shape.attention)
        if self.attends_to_memory:
            self.cross_attention = CrossAttention(shape.attention)
        self.feed_forward = shape.new_feed_forward() if shape.experts is None else MixtureOfExperts(shape.experts)
        self.self_attention_residual = Residual(shape)
        if self.attends_to_memory:  # in this order, by which an optimizer's state is saved
            self.cross_attention_residual = Residual(shape)
        self.feed_forward_residual = Residual(shape)

    def _feed_forward(self, states: Tensor, tokens: Tensor | None) -> tuple[Tensor, Balance]:
        """states: (B, T, D) -> (B, T, D), and the balance of its experts. tokens: see MixtureOfExperts"""
        balance = Balance()

        def sublayer(inputs: Tensor) -> Tensor:
            nonlocal balance
            output: Tensor
            output, balance = self.feed_forward(inputs, tokens)
            return output

        summed: Tensor = self.feed_forward_residual(states, sublayer)
        return summed, balance

    def prepared(self) -> LayerStep:
        """A causal layer for one search, without gradient."""
        attend: Callable[..., tuple[Tensor, Any]] = self.self_attention.prepared()
        feed_forward = self.feed_forward.prepared()
        attention_input, attention_result = self.self_attention_residual.prepared()
        feed_forward_input, feed_forward_result = self.feed_forward_residual.prepared()
        if self.attends_to_memory:
            attend_to_memory = self.cross_attention.prepared()
            cross_input, cross_result = self.cross_attention_residual.prepared()

        def step(
            states: Tensor, cache: Any, used: int | Tensor, bias: Tensor | None, positions: Tensor | None, *memory: Any
        ) -> tuple[Tensor, Any]:
            change, cache = attend(attention_input(states), cache, used, bias, positions)
            states = attention_result(states, change)
            if memory:
                states = cross_result(states, attend_to_memory(cross_input(states), *memory))
            return feed_forward_result(states, feed_forward(feed_forward_input(states))), cache

        return step


class EncoderLayer(_Layer):
    """Self-attention, then the feed-forward network. causal: whether a position sees no later one"""

    causal = False

    def forward(
        self, states: Tensor, mask: Tensor | None = None, tokens: Tensor | None = None
    ) -> tuple[Tensor, Balance]:
        """states: (B, S, D) -> (B, S, D), and the balance of its experts.

        mask: (B, 1, 1, S), False at padding; without effect in a causal layer
        tokens: (N,) flat positions of the tokens; None for all; without effect without experts
        """
        states = self.self_attention_residual(states, lambda x: self.self_attention(x, mask, self.causal))
        return self._feed_forward(states, tokens)


class CausalLayer(EncoderLayer):
    """The layer of a language model. Padding needs no mask: it follows the tokens, and no position looks ahead."""

    causal = True


class DecoderLayer(_Layer):
    """Masked self-attention, attention to the encoder's output, then the feed-forward network."""

    attends_to_memory = True

    def forward(
        self, states: Tensor, memory: Tensor, mask: Tensor | None, tokens: Tensor | None = None
    ) -> tuple[Tensor, Balance]:
        """states: (B, T, D) -> (B, T, D), and the balance of its experts.

        memory: (B, S, D); mask: (B, 1, 1, S), False at padding of the source; tokens: of the target, see EncoderLayer
        Attention needs no mask for padding of the target: it follows the tokens, and no position looks ahead.
        """
        states = self.self_attention_residual(states, self._look_back)
        keys_values = self.cross_attention.project_memory(memory)
        states = self.cross_attention_residual(states, lambda x: self.cross_attention(x, keys_values, mask))
        return self._feed_forward(states, tokens)

    def _look_back(self, states: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D), each position of its own input and the earlier ones."""
        layer = self.self_attention
        result: Tensor = layer(states, causal=True) if isinstance(layer, SelfAttention) else layer(states)
        return result
