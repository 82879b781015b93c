"""The Transformer's layers (Vaswani et al., 2017, section 3.1), with a norm after each sub-layer (as in the paper) or before it.

Dimensions: B sentences, S source and T target positions, D width, H heads, N rows of a search.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from nmt.feed_forwards.base import FeedForward
from nmt.mixers.base import Mixer, Past
from nmt.nn.attention import CrossAttention, KeysValues
from nmt.nn.dropout import dropout

EPSILON: Final = 1e-6  # added to the variance in layer normalisation, as in the reference code


class RMSNorm(nn.RMSNorm):
    """RMS normalisation (Zhang and Sennrich, 2019) in the weight's number format: x / sqrt(mean(x^2) + epsilon) * weight"""

    def forward(self, states: Tensor) -> Tensor:
        """(..., D) -> (..., D)"""
        return torch.rms_norm(states.to(self.weight.dtype), self.normalized_shape, self.weight, self.eps)


@dataclass(frozen=True)
class LayerShape:
    """The settings that all layers of a Transformer share.

    width: D
    dropout: probability of dropout on each sub-layer's output
    pre_norm: whether each sub-layer's input is normalised instead of its output
    epsilon: added to the variance in normalisation
    norm: a value of `--norm`
    """

    width: int
    dropout: float
    pre_norm: bool
    epsilon: float = EPSILON
    norm: str = "layer"

    def new_norm(self) -> nn.LayerNorm | RMSNorm:
        """A norm for states of the layer's width."""
        return (RMSNorm if self.norm == "rms" else nn.LayerNorm)(self.width, eps=self.epsilon)


class Residual(nn.Module):
    """A residual connection and a norm around a sub-layer f: norm(x + dropout(f(x))) (section 5.4).

    With pre_norm: x + dropout(f(norm(x))).
    """

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.norm = shape.new_norm()
        self.dropout = shape.dropout
        self.pre_norm = shape.pre_norm

    def before(self, states: Tensor) -> Tensor:
        """Compute the input of f from x: (..., D) -> (..., D)"""
        normed: Tensor = self.norm(states) if self.pre_norm else states
        return normed

    def after(self, states: Tensor, change: Tensor) -> Tensor:
        """Compute the result from x and the output of f: (..., D). The result has x's type if that has more bits."""
        result = states + dropout(change, self.dropout, self.training)
        return result if self.pre_norm else self.norm(result)


LayerStep = Callable[[Tensor, Past, Any, tuple[KeysValues, Tensor] | None], tuple[Tensor, Past]]
"""(states, past, context, memory) -> output (N, D) and new past; see MixerStep. memory: keys and values with the padding bias,
or None without a memory."""


class TransformerLayer(nn.Module):
    """A layer with self-attention, attention to the encoder's output (only in a decoder) and a feed-forward network.

    self_attention: self-attention or another mixer; any mixer is saved under this name
    cross_attention: the attention to the encoder's output, or None
    causal: whether a position cannot see later positions, as in a decoder or a language model
    """

    cross_attention: CrossAttention
    cross_attention_residual: Residual

    def __init__(
        self,
        shape: LayerShape,
        self_attention: Mixer,
        cross_attention: CrossAttention | None,
        feed_forward: FeedForward,
        causal: bool,
    ) -> None:
        super().__init__()
        self.causal, self.reads_memory, self.self_attention = causal, cross_attention is not None, self_attention
        if cross_attention is not None:
            self.cross_attention = cross_attention
        self.feed_forward, self.self_attention_residual = feed_forward, Residual(shape)
        if cross_attention is not None:
            self.cross_attention_residual = Residual(shape)
        self.feed_forward_residual = Residual(shape)

    def forward(self, states: Tensor, mask: Tensor | None = None, memory: Tensor | None = None) -> Tensor:
        """states: (B, T, D) -> (B, T, D)

        mask: (B, 1, 1, S), False at padding in the memory (B, S, D), or in the states of an encoder. A causal layer needs no mask
            for its states, because padding follows the tokens and no position looks ahead.
        """
        mixing, feeding = self.self_attention_residual, self.feed_forward_residual
        own_mask = None if self.causal else mask
        states = mixing.after(states, self.self_attention(mixing.before(states), own_mask, self.causal))
        if memory is not None:
            crossing, keys_values = self.cross_attention_residual, self.cross_attention.project_memory(memory)
            states = crossing.after(states, self.cross_attention(crossing.before(states), keys_values, mask))
        return feeding.after(states, self.feed_forward(feeding.before(states)))

    def search_step(self) -> LayerStep:
        """The function that computes a causal layer at the next position of a search, without gradients."""
        mix, feed_forward = self.self_attention.search_step(), self.feed_forward.search_step()
        attend = self.cross_attention.search_step() if self.reads_memory else None
        mixing, feeding = self.self_attention_residual, self.feed_forward_residual

        def step(
            states: Tensor, past: Past, context: Any, memory: tuple[KeysValues, Tensor] | None
        ) -> tuple[Tensor, Past]:
            change, past = mix(mixing.before(states), past, context)
            states = mixing.after(states, change)
            if attend is not None and memory is not None:
                crossing = self.cross_attention_residual
                states = crossing.after(states, attend(crossing.before(states), *memory))
            return feeding.after(states, feed_forward(feeding.before(states))), past

        return step


def residual_outputs(layers: Sequence[TransformerLayer]) -> Sequence[str]:
    """Name patterns for the last weights of these layers' sub-layers; empty if a sub-layer declares none."""
    parts = [("self_attention", layer.self_attention.residual_outputs) for layer in layers]
    parts += [("feed_forward", layer.feed_forward.residual_outputs) for layer in layers]
    if not all(patterns for _, patterns in parts):
        return ()
    names = [f"*.{name}.{pattern}" for name, patterns in parts for pattern in patterns]
    return list(dict.fromkeys([*names, "*.cross_attention.output.*"]))
