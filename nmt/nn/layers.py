"""The Transformer's layers (Vaswani et al., 2017, section 3.1), in the paper's order of norms or before each sub-layer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from nmt.nn.attention import AttentionShape, CrossAttention, SelfAttention
from nmt.nn.dropout import dropout
from nmt.nn.linear import Linear

EPSILON = 1e-6  # of layer normalisation, as in the reference code


@dataclass(frozen=True)
class LayerShape:
    """attention: its shape; inner: width of the feed-forward network; pre_norm: norm before each sub-layer, not after."""

    attention: AttentionShape
    inner: int
    dropout: float
    activation_dropout: float
    pre_norm: bool


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2, equation 2; dropout on the inner activations is off in the paper."""

    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.inner = Linear(width, inner)
        self.outer = Linear(inner, width)
        self.dropout = dropout
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, states: Tensor) -> Tensor:
        """(..., D) -> (..., D)"""
        hidden = self.inner(states).relu()
        outer: Tensor = self.outer(dropout(hidden, self.dropout, self.training))
        return outer

    def prepared(self) -> Callable[[Tensor], Tensor]:
        """`forward` of (N, D) without gradient and dropout."""
        inner, outer = self.inner.prepared(), self.outer.prepared()
        return lambda states: outer(inner(states).relu_())


class Residual(nn.Module):
    """A residual connection with layer normalisation around a sub-layer: norm(x + dropout(f(x))), section 5.4.

    With pre_norm: x + dropout(f(norm(x))).
    """

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.attention.width, eps=EPSILON)
        self.dropout = shape.dropout
        self.pre_norm = shape.pre_norm

    def forward(self, states: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., D) -> (..., D)"""
        if self.pre_norm:
            return states + dropout(sublayer(self.norm(states)), self.dropout, self.training)
        normed: Tensor = self.norm(states + dropout(sublayer(states), self.dropout, self.training))
        return normed

    def prepared(self) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]:
        """Without gradient and dropout: what the sub-layer reads of (N, D); and what becomes of that and what it gave.

        What it gave may be written into.
        """
        norm = prepared_norm(self.norm)
        if self.pre_norm:
            return norm, lambda states, change: change.add_(states)
        return lambda states: states, lambda states, change: norm(change.add_(states))


def prepared_norm(norm: nn.LayerNorm) -> Callable[[Tensor], Tensor]:
    """Layer normalisation without gradient, its weights looked up."""
    shape, weight, bias, epsilon = list(norm.normalized_shape), norm.weight.detach(), norm.bias.detach(), norm.eps
    return lambda states: torch.layer_norm(states, shape, weight, bias, epsilon)


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.self_attention = SelfAttention(shape.attention)
        self.feed_forward = FeedForward(shape.attention.width, shape.inner, shape.activation_dropout)
        self.self_attention_residual = Residual(shape)
        self.feed_forward_residual = Residual(shape)

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """states: (B, S, D); mask: (B, 1, 1, S), True at words. Returns (B, S, D)."""
        states = self.self_attention_residual(states, lambda x: self.self_attention(x, mask))
        attended: Tensor = self.feed_forward_residual(states, self.feed_forward)
        return attended


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, then the feed-forward network."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.self_attention = SelfAttention(shape.attention)
        self.cross_attention = CrossAttention(shape.attention)
        self.feed_forward = FeedForward(shape.attention.width, shape.inner, shape.activation_dropout)
        self.self_attention_residual = Residual(shape)
        self.cross_attention_residual = Residual(shape)
        self.feed_forward_residual = Residual(shape)

    def forward(self, states: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """states: (B, T, D); memory: (B, S, D); mask: (B, 1, 1, S). Returns (B, T, D).

        Padding needs no mask among the targets: it stands after every word, and nothing looks ahead.
        """
        states = self.self_attention_residual(states, lambda x: self.self_attention(x, causal=True))
        remembered = self.cross_attention.remember(memory)
        states = self.cross_attention_residual(states, lambda x: self.cross_attention(x, remembered, mask))
        attended: Tensor = self.feed_forward_residual(states, self.feed_forward)
        return attended

    def prepared(self) -> "LayerStep":
        """The layer one more position of each hypothesis at a time, without gradient; see LayerStep."""
        attend, look, feed = (
            self.self_attention.prepared(),
            self.cross_attention.prepared(),
            self.feed_forward.prepared(),
        )
        before_attending, attended = self.self_attention_residual.prepared()
        before_looking, looked = self.cross_attention_residual.prepared()
        before_feeding, fed = self.feed_forward_residual.prepared()

        def step(
            states: Tensor,
            past: tuple[Tensor, Tensor],
            used: int,
            hidden: Tensor,
            remembered: tuple[Tensor, Tensor],
            unseen: Tensor,
        ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            change, past = attend(before_attending(states), past, used, hidden)
            states = attended(states, change)
            states = looked(states, look(before_looking(states), remembered, unseen))
            return fed(states, feed(before_feeding(states))), past

        return step


class LayerStep(Protocol):
    """What a search asks of a decoder's layer."""

    def __call__(
        self,
        states: Tensor,
        past: tuple[Tensor, Tensor],
        used: int,
        hidden: Tensor,
        remembered: tuple[Tensor, Tensor],
        unseen: Tensor,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """states: (N, D) of the next position; past, used, hidden: see SelfStep.

        remembered: see CrossStep; unseen: (B * H, 1, S), minus infinity at padding
        Returns (N, D) and the keys and values that are then past.
        """
