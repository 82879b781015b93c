"""Multi-head scaled dot-product attention (Vaswani et al., 2017, section 3.2).

Dimensions: B sentences, T queries, S keys, D width, H heads, K and V width of a head's keys and values, N rows of a step.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from nmt.nn.linear import Linear


@dataclass(frozen=True)
class AttentionShape:
    """width: D; heads: H; keys, values: of one head; bias: whether the projections have biases (the paper's have none)."""

    width: int
    heads: int
    keys: int
    values: int
    bias: bool = False
    dropout: float = 0.0


def glorot_each(weight: Tensor, sizes: list[int]) -> None:
    """Glorot-uniform for each of the matrices that are stacked in `weight`, as if they were apart (T2T's initialisation)."""
    for part in weight.split(sizes):
        nn.init.xavier_uniform_(part)


class _Attention(nn.Module):
    """What self- and cross-attention share: heads, the weighted sum, and the output projection."""

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__()
        self.shape = shape
        self.output = Linear(shape.heads * shape.values, shape.width, bias=shape.bias)
        nn.init.xavier_uniform_(self.output.weight)
        if shape.bias:
            nn.init.zeros_(self.output.bias)

    def _project(self, *widths: int) -> Linear:
        linear = Linear(self.shape.width, sum(widths), bias=self.shape.bias)
        glorot_each(linear.weight, list(widths))
        if self.shape.bias:
            nn.init.zeros_(linear.bias)
        return linear

    def _split(self, states: Tensor) -> Tensor:
        """(B, T, H * K) -> (B, H, T, K)"""
        heads: Tensor = states.unflatten(-1, (self.shape.heads, -1))  # B T H K
        return heads.transpose(1, 2)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """softmax(Q K^T / sqrt(d_k)) V, equation 1, then the output projection: (B, T, D)."""
        dropout = self.shape.dropout if self.training else 0.0
        heads = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, dropout_p=dropout, is_causal=causal)
        merged: Tensor = self.output(heads.transpose(1, 2).flatten(2))  # B H T V -> B T H*V -> B T D
        return merged


class SelfAttention(_Attention):
    """Attention of a sequence to itself; one matrix makes queries, keys and values."""

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__(shape)
        self._widths = [shape.heads * shape.keys, shape.heads * shape.keys, shape.heads * shape.values]
        self.queries_keys_values = self._project(*self._widths)

    def _heads(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, values = self.queries_keys_values(states).split(self._widths, dim=-1)
        return self._split(queries), self._split(keys), self._split(values)

    def forward(self, states: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """states: (B, T, D); mask: (B, 1, 1, T), True where a key may be seen. Returns (B, T, D)."""
        return self._attend(*self._heads(states), mask, causal)

    def step(self, states: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """One more position. states: (N, D); past: keys (N, H, T, K) and values (N, H, T, V) of those before it."""
        queries, keys, values = self._heads(states.unsqueeze(1))  # N H 1 K
        if past is not None:
            keys = torch.cat([past[0], keys], dim=2)
            values = torch.cat([past[1], values], dim=2)
        return self._attend(queries, keys, values, None, False).squeeze(1), (keys, values)


class CrossAttention(_Attention):
    """Attention to a memory; one matrix makes the memory's keys and values, once a sentence."""

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__(shape)
        self._widths = [shape.heads * shape.keys, shape.heads * shape.values]
        self.queries = self._project(shape.heads * shape.keys)
        self.keys_values = self._project(*self._widths)

    def remember(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """memory: (B, S, D) -> its keys (B, H, S, K) and values (B, H, S, V)."""
        keys, values = self.keys_values(memory).split(self._widths, dim=-1)
        return self._split(keys), self._split(values)

    def forward(self, states: Tensor, remembered: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """states: (B, T, D), T positions or T hypotheses alike; mask: (B, 1, 1, S). Returns (B, T, D)."""
        return self._attend(self._split(self.queries(states)), *remembered, mask, False)
