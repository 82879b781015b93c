"""The Transformer's layers (Vaswani et al., 2017, section 3.1), with norms after each sub-layer (the paper) or before.

Dimensions: B sentences, S source and T target positions, D width, H heads, N rows of a search.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from nmt.feed_forwards.base import Balance, FeedForward
from nmt.mixers.base import Mixer, Past
from nmt.nn.attention import CrossAttention, KeysValues
from nmt.nn.dropout import dropout
from nmt.nn.linear import Projection

EPSILON: Final = 1e-6  # of layer normalisation, as in the reference code


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + epsilon) * weight (Zhang and Sennrich, 2019), in the number format of the weight."""

    def forward(self, states: Tensor) -> Tensor:
        """(..., D) -> (..., D)"""
        return torch.rms_norm(states.to(self.weight.dtype), self.normalized_shape, self.weight, self.eps)


@dataclass(frozen=True)
class LayerShape:
    """What the layers of a Transformer have alike.

    width: D; dropout: probability, on each sub-layer's output
    pre_norm: whether each sub-layer's input is normalised instead of its output
    norm: a name of `--norm`; epsilon: of it
    """

    width: int
    dropout: float
    pre_norm: bool
    epsilon: float = EPSILON
    norm: str = "layer"

    def new_norm(self) -> nn.LayerNorm | RMSNorm:
        """A norm of states of the layer's width."""
        return (RMSNorm if self.norm == "rms" else nn.LayerNorm)(self.width, eps=self.epsilon)


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


LayerStep = Callable[[Tensor, Past, Any], tuple[Tensor, Past]]
"""(states, past, context) -> (N, D), and the past: a causal layer at the next position, see MixerStep."""
DecoderStep = Callable[[Tensor, Past, Any, KeysValues, Tensor], tuple[Tensor, Past]]
"""(states, past, context, memory, padding_bias) -> (N, D), and the past; see MixerStep and CrossAttentionStep."""


class _Layer(nn.Module):
    """The base of a layer: a mixer, attention to a memory if it has one, a feed-forward network.

    self_attention: or another mixer, which has the same name, by which weights are saved
    causal: whether a position sees no later one
    """

    def __init__(
        self,
        shape: LayerShape,
        self_attention: Mixer,
        cross_attention: CrossAttention | None,
        feed_forward: FeedForward,
        causal: bool,
    ) -> None:
        super().__init__()
        self.causal = causal
        self.self_attention = self_attention
        if cross_attention is not None:
            self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.self_attention_residual = Residual(shape)
        if cross_attention is not None:  # in this order, by which an optimizer's state is saved
            self.cross_attention_residual = Residual(shape)
        self.feed_forward_residual = Residual(shape)

    def _mix(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """states: (B, T, D) -> (B, T, D). mask: see Mixer"""
        summed: Tensor = self.self_attention_residual(states, lambda x: self.self_attention(x, mask, self.causal))
        return summed

    def _feed_forward(self, states: Tensor, tokens: Tensor | None) -> tuple[Tensor, Balance]:
        """states: (B, T, D) -> (B, T, D), and the balance of the network. tokens: see FeedForward"""
        network, balance = self.feed_forward, Balance()
        if not network.auxiliary_losses:
            return self.feed_forward_residual(states, network), balance

        def sublayer(inputs: Tensor) -> Tensor:
            nonlocal balance
            output: Tensor
            output, balance = network(inputs, tokens)
            return output

        summed: Tensor = self.feed_forward_residual(states, sublayer)
        return summed, balance


class EncoderLayer(_Layer):
    """Self-attention or another mixer, then the feed-forward network. causal: as in a language model"""

    def __init__(
        self, shape: LayerShape, self_attention: Mixer, feed_forward: FeedForward, causal: bool = False
    ) -> None:
        super().__init__(shape, self_attention, None, feed_forward, causal)

    def forward(
        self, states: Tensor, mask: Tensor | None = None, tokens: Tensor | None = None
    ) -> tuple[Tensor, Balance]:
        """states: (B, S, D) -> (B, S, D), and the balance of its feed-forward network.

        mask: (B, 1, 1, S), False at padding; without effect in a causal layer
        tokens: (N,) flat positions of the tokens; None for all; see FeedForward
        """
        return self._feed_forward(self._mix(states, mask), tokens)

    def search_step(self) -> LayerStep:
        """A causal layer for one search, without gradient: (states, past, context) -> (N, D), and the past."""
        mix, feed_forward = self.self_attention.search_step(), self.feed_forward.prepared()
        mixer_input, mixer_result = self.self_attention_residual.prepared()
        feed_forward_input, feed_forward_result = self.feed_forward_residual.prepared()

        def step(states: Tensor, past: Past, context: Any) -> tuple[Tensor, Past]:
            change, past = mix(mixer_input(states), past, context)
            states = mixer_result(states, change)
            return feed_forward_result(states, feed_forward(feed_forward_input(states))), past

        return step


class DecoderLayer(_Layer):
    """Masked self-attention or another mixer, attention to the encoder's output, then the feed-forward network."""

    cross_attention: CrossAttention

    def __init__(
        self, shape: LayerShape, self_attention: Mixer, cross_attention: CrossAttention, feed_forward: FeedForward
    ) -> None:
        super().__init__(shape, self_attention, cross_attention, feed_forward, True)

    def forward(
        self, states: Tensor, memory: Tensor, mask: Tensor | None, tokens: Tensor | None = None
    ) -> tuple[Tensor, Balance]:
        """states: (B, T, D) -> (B, T, D), and the balance of its feed-forward network.

        memory: (B, S, D); mask: (B, 1, 1, S), False at padding of the source; tokens: of the target, see EncoderLayer
        Mixing needs no mask for padding of the target: it follows the tokens, and no position looks ahead.
        """
        states = self._mix(states, None)
        keys_values = self.cross_attention.project_memory(memory)
        states = self.cross_attention_residual(states, lambda x: self.cross_attention(x, keys_values, mask))
        return self._feed_forward(states, tokens)

    def search_step(self) -> DecoderStep:
        """The layer for one search, without gradient."""
        mix, attend = self.self_attention.search_step(), self.cross_attention.search_step()
        feed_forward = self.feed_forward.prepared()
        mixer_input, mixer_result = self.self_attention_residual.prepared()
        cross_input, cross_result = self.cross_attention_residual.prepared()
        feed_forward_input, feed_forward_result = self.feed_forward_residual.prepared()

        def step(
            states: Tensor, past: Past, context: Any, memory: KeysValues, padding_bias: Tensor
        ) -> tuple[Tensor, Past]:
            change, past = mix(mixer_input(states), past, context)
            states = mixer_result(states, change)
            states = cross_result(states, attend(cross_input(states), memory, padding_bias))
            return feed_forward_result(states, feed_forward(feed_forward_input(states))), past

        return step


def residual_outputs(layers: Sequence[EncoderLayer | DecoderLayer]) -> Sequence[str]:
    """Patterns of the names of weights that end the sub-layers of these layers; none if a layer has none."""
    parts = [("self_attention", layer.self_attention.residual_outputs) for layer in layers]
    parts += [("feed_forward", layer.feed_forward.residual_outputs) for layer in layers]
    if not all(patterns for _, patterns in parts):
        return ()
    names = [f"*.{name}.{pattern}" for name, patterns in parts for pattern in patterns]
    return list(dict.fromkeys([*names, "*.cross_attention.output.*"]))
