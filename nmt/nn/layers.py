"""The Transformer's layers (Vaswani et al., 2017, section 3.1), in the paper's order of norms or before each sub-layer."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.functional import relu

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
        hidden = relu(self.inner(states))
        outer: Tensor = self.outer(dropout(hidden, self.dropout, self.training))
        return outer


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

    def step(
        self,
        states: Tensor,
        past: tuple[Tensor, Tensor],
        used: int,
        hidden: Tensor,
        remembered: tuple[Tensor, Tensor],
        unseen: Tensor,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """One more position of each hypothesis. states: (B, W, D); past, used, hidden: see SelfAttention.step.

        remembered: keys and values of the memory, (B, H, S, .); unseen: (B, 1, 1, S), minus infinity at padding
        Returns states (B, W, D) and the keys and values that are then past.
        """
        present = past

        def attend_to_self(x: Tensor) -> Tensor:
            nonlocal present
            attended, present = self.self_attention.step(x, past, used, hidden)
            return attended

        states = self.self_attention_residual(states, attend_to_self)
        states = self.cross_attention_residual(states, lambda x: self.cross_attention.step(x, remembered, unseen))
        states = self.feed_forward_residual(states, self.feed_forward)
        return states, present
