"""Multi-head scaled dot-product attention (Vaswani et al., 2017, section 3.2).

Dimensions: B sentences, T queries, S keys, D width, H heads, K and V width of a head's keys and values, N rows of a step.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from nmt.nn.dropout import dropout
from nmt.nn.linear import Linear

SHORT: Final = 128  # the square root of the most scores of a head that a CPU is quicker with by `plain_attention`
ROOM: Final = 16  # steps that a cache of keys or values has room for at first

_recorded: ContextVar[list[Tensor] | None] = ContextVar("recorded", default=None)


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


@contextmanager
def recording() -> Iterator[list[Tensor]]:
    """The weights of every attention that is computed within, (B, H, T, S) each, in their order."""
    weights: list[Tensor] = []
    token = _recorded.set(weights)
    try:
        yield weights
    finally:
        _recorded.reset(token)


def _note(weights: Tensor, heads: Sequence[int]) -> None:
    """weights: (B * H, T, S); heads: B and H"""
    if not torch.compiler.is_compiling() and (recorded := _recorded.get()) is not None:
        recorded.append(weights.unflatten(0, heads))


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
    """Whether a short sentence is trained on by a CPU, in float32, and not by a compiler's code; or weights are recorded."""
    if torch.compiler.is_compiling():
        return False
    on_cpu = queries.device.type == "cpu" and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    return (on_cpu and queries.shape[2] * keys.shape[2] <= SHORT**2) or _recorded.get() is not None


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
    transposed = keys.flatten(0, 1).transpose(1, 2)  # BH K S
    return weighted_sum(
        queries, transposed, values, hidden.expand(*heads, -1, columns).flatten(0, 1), dropout_probability
    )


def weighted_sum(
    queries: Tensor, transposed: Tensor, values: Tensor, hidden: Tensor, dropout_probability: float = 0.0
) -> Tensor:
    """Equation 1: (B, H, T, V). queries: (B, H, T, K); turned: the keys (B * H, K, S); values: (B, H, S, V)

    hidden: (B * H, 1 or T, S), what is added to a score: 0, or minus infinity where a key is not seen
    A search keeps its keys turned: a CPU multiplies few queries with them several times as fast as with keys by row.
    """
    heads = queries.shape[:2]
    scores = torch.baddbmm(hidden, queries.flatten(0, 1), transposed, alpha=queries.shape[3] ** -0.5)
    weights = scores.softmax(-1)
    _note(weights, heads)
    if dropout_probability:
        weights = dropout(weights, dropout_probability, True)
    sums: Tensor = torch.bmm(weights, values.flatten(0, 1)).unflatten(0, heads)
    return sums


def appended(cache: Tensor, new: Tensor, used: int, along: int) -> Tensor:
    """A cache with `new` behind its first `used` entries along a dimension: the same one while it has room.

    cache: (B, H, C, V), or (B, H, K, C) along the last; new: the same with W for C
    """
    room, count = cache.shape[along], new.shape[along]
    if used + count > room:
        shape = list(cache.shape)
        shape[along] = max(2 * room, used + ROOM * count)
        larger = cache.new_empty(shape)
        larger.narrow(along, 0, used).copy_(cache.narrow(along, 0, used))
        cache = larger
    cache.narrow(along, used, count).copy_(new)
    return cache


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
        return self._merge(attention(queries, keys, values, mask, causal, self.shape.dropout if self.training else 0.0))

    def _merge(self, heads: Tensor) -> Tensor:
        """(B, H, T, V) -> (B, T, D)"""
        merged: Tensor = self.output(heads.transpose(1, 2).flatten(2))
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

    def prepared(self) -> "SelfStep":
        """Attention one more position of each hypothesis at a time, without gradient; see SelfStep."""
        project, merge, widths, heads = (
            self.queries_keys_values.prepared(),
            self.output.prepared(),
            self._widths,
            self.shape.heads,
        )

        def step(
            states: Tensor, past: tuple[Tensor, Tensor], used: int, hidden: Tensor
        ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            B = len(past[0])
            W = len(states) // B
            queries, key, value = (
                part.view(B, W, heads, -1).transpose(1, 2) for part in project(states).split_with_sizes(widths, 1)
            )
            transposed, values = appended(past[0], key.transpose(2, 3), used, 3), appended(past[1], value, used, 2)
            end = used + W
            sums = weighted_sum(queries, transposed.flatten(0, 1)[:, :, :end], values[:, :, :end], hidden)  # B H W V
            return merge(sums.transpose(1, 2).reshape(B * W, -1)), (transposed, values)

        return step


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
        """states: (B, T, D); mask: (B, 1, 1, S). Returns (B, T, D)."""
        return self._attend(self._split(self.queries(states)), *remembered, mask, False)

    def prepared(self) -> "CrossStep":
        """Attention one more position of each hypothesis at a time, without gradient; see CrossStep."""
        project, merge, heads = self.queries.prepared(), self.output.prepared(), self.shape.heads

        def step(states: Tensor, remembered: tuple[Tensor, Tensor], hidden: Tensor) -> Tensor:
            queries = project(states).view(len(remembered[0]), -1, heads, self.shape.keys).transpose(1, 2)  # B H W K
            transposed, values = remembered
            sums = weighted_sum(queries, transposed.flatten(0, 1), values, hidden)
            return merge(sums.transpose(1, 2).reshape(len(states), -1))

        return step


class SelfStep(Protocol):
    """What a search asks of attention of hypotheses to themselves; its weights are looked up and its products chosen before."""

    def __call__(
        self, states: Tensor, past: tuple[Tensor, Tensor], used: int, hidden: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """states: (N, D) of the next position; hidden: what broadcasts to (B * H, W, used + W), see `weighted_sum`.

        past: turned keys (B, H, K, C) and values (B, H, C, V) of all hypotheses that a sentence ever had, the first
        `used` of them filled; who sees which is told by `hidden`, so that nothing moves when hypotheses change places
        Returns (N, D), and the keys and values that are then past.
        """


class CrossStep(Protocol):
    """What a search asks of attention to a memory."""

    def __call__(self, states: Tensor, remembered: tuple[Tensor, Tensor], hidden: Tensor) -> Tensor:
        """states: (N, D) -> (N, D); hidden: (B * H, 1, S), see `weighted_sum`.

        remembered: what `CrossAttention.remember` gives, with the keys turned: (B, H, K, S)
        """
