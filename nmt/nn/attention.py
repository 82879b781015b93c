"""Multi-head scaled dot-product attention (Vaswani et al., 2017, section 3.2).

Dimensions: B sentences, T queries, S keys, D width, H heads, K and V width of a head's keys and values, N rows of a step.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from nmt.nn.dropout import dropout
from nmt.nn.linear import Linear

SHORT = 128  # the square root of the most scores of a head that a CPU is quicker with by `plain_attention`


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


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, dropout_probability: float
) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) V, equation 1, by what is fastest: (B, H, T, V).

    queries: (B, H, T, K); keys: (B, H, S, K); values: (B, H, S, V)
    mask: (B, 1, 1, S), True where a key may be seen, one in each row at least
    causal: whether a query sees no key after its own position, instead of a mask
    dropout_probability: of a weight
    """
    if _quicker_plainly(queries, keys):
        return plain_attention(queries, keys, values, mask, causal, dropout_probability)
    return scaled_dot_product_attention(queries, keys, values, mask, dropout_probability, causal)


def _quicker_plainly(queries: Tensor, keys: Tensor) -> bool:
    """Whether a short sentence is trained on by a CPU, in float32, and not by a compiler's code."""
    by_itself = not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()
    on_cpu = queries.device.type == "cpu" and torch.is_grad_enabled() and by_itself
    return on_cpu and queries.shape[2] * keys.shape[2] <= SHORT**2


def plain_attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, dropout_probability: float
) -> Tensor:
    """`attention` as it is written, all weights at once; torch's fused kernels spend more on short sentences than they save."""
    heads, (rows, columns) = queries.shape[:2], (queries.shape[2], keys.shape[2])
    hidden = queries.new_zeros(1, 1, 1, 1)  # what is added to a score: 0, or minus infinity where a key is not seen
    if causal:
        hidden = queries.new_full((rows, columns), -math.inf).triu(1)[None, None]  # 1 1 T S
    elif mask is not None:
        hidden = hidden.masked_fill(~mask, -math.inf)  # B 1 1 S
    hidden = hidden.expand(*heads, -1, columns).flatten(0, 1)
    turned = keys.flatten(0, 1).transpose(1, 2)  # BH K S
    scores = torch.baddbmm(hidden, queries.flatten(0, 1), turned, alpha=queries.shape[3] ** -0.5)
    weights = dropout(scores.softmax(-1), dropout_probability, True)
    sums: Tensor = (weights @ values.flatten(0, 1)).unflatten(0, heads)
    return sums


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
        """Attention of all heads, then the output projection: (B, T, D)."""
        heads = attention(queries, keys, values, mask, causal, self.shape.dropout if self.training else 0.0)
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
