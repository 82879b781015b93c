"""Multi-head scaled dot-product attention (Vaswani et al., 2017, section 3.2).

Dimensions: B sentences, T queries, S keys, D width, H heads, G heads of keys and values (each shared by H / G query heads),
K and V width of a head's keys and values; in a search W hypotheses per sentence, N = B * W rows, C capacity of a cache in
entries.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from nmt.nn.dropout import dropout
from nmt.nn.linear import Linear, Projection

MAX_PLAIN_SCORES: Final = 128**2  # up to this many scores per head, training on a CPU is faster without a fused kernel
INITIAL_CACHE_STEPS: Final = 16

_recorded: ContextVar[list[Tensor] | None] = ContextVar("recorded", default=None)


@dataclass(frozen=True)
class AttentionShape:
    """The sizes of an attention layer: D, H, K, V and, as kv_heads, G (H by default).

    bias: whether the projections have biases; those of the paper have none
    dropout: probability of dropout on attention weights
    """

    width: int
    heads: int
    keys: int
    values: int
    bias: bool = False
    dropout: float = 0.0
    kv_heads: int | None = None

    @property
    def groups(self) -> int:
        """G, the number of key and value heads (Ainslie et al., 2023)."""
        return self.kv_heads or self.heads


@contextmanager
def recording(is_wanted: bool = True) -> Iterator[list[Tensor]]:
    """Context that records, if requested, the weights (B, H, T, S) of each attention computed in it, in order."""
    weights: list[Tensor] = []
    token = _recorded.set(weights if is_wanted else _recorded.get())
    try:
        yield weights
    finally:
        _recorded.reset(token)


def recompute_contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Contexts for a layer's forward pass and for its recomputation, in which both choose the same kernels."""
    return nullcontext(), nullcontext() if _recorded.get() is None else recording()


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool, dropout_probability: float
) -> Tensor:
    """Compute softmax(Q K^T / sqrt(d_k)) V, equation 1, with the faster of two implementations: (B, H, T, V).

    queries: (B, H, T, K); keys: (B, G, S, K); values: (B, G, S, V)
    mask: (B, 1, 1 or T, S), True where a key is visible, at least one per row
    causal: whether a query cannot see keys after its own position; if True, the mask is ignored
    """
    with not_cast(queries, keys, values):
        if _plain_is_faster(queries, keys):
            bias = grouped_bias(visibility_bias(queries, keys.shape[2], mask, causal), queries.shape[:2], keys.shape[1])
            return attention_of_transposed(queries, keys.flatten(0, 1).mT, values, bias, dropout_probability)
        shared = keys.shape[1] < queries.shape[1]
        return scaled_dot_product_attention(queries, keys, values, mask, dropout_probability, causal, enable_gqa=shared)


def visibility_bias(queries: Tensor, keys: int, mask: Tensor | None, causal: bool) -> Tensor:
    """A bias of 0 for visible keys and minus infinity for others: (B or 1, 1, 1 or T, S). keys: S; others: see `attention`"""
    if causal:
        return queries.new_full((queries.shape[2], keys), -math.inf).triu(1)[None, None]  # (1, 1, T, S)
    bias = queries.new_zeros(1, 1, 1, 1)
    return bias if mask is None else bias.masked_fill(~mask, -math.inf)  # (B, 1, 1 or T, S)


def _plain_is_faster(queries: Tensor, keys: Tensor) -> bool:
    """Whether to avoid fused kernels: to record weights, or because of their overhead when training on short sentences."""
    if torch.compiler.is_compiling():
        return False
    are_short = queries.shape[2] * keys.shape[2] <= MAX_PLAIN_SCORES
    on_cpu = queries.device.type == "cpu" and queries.dtype == torch.float32
    return (are_short and on_cpu and torch.is_grad_enabled()) or _recorded.get() is not None


def not_cast(*tensors: Tensor) -> AbstractContextManager[object]:
    """Context that disables autocast if all tensors are float32 on a CPU, where casting would be slower."""
    are_float32 = all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)
    return torch.autocast("cpu", enabled=False) if are_float32 and torch.is_autocast_enabled("cpu") else nullcontext()


def grouped_bias(bias: Tensor, heads: Sequence[int], groups: int) -> Tensor:
    """Reshape a bias (B or 1, H or 1, 1 or T, S) for `attention_of_transposed`. heads: B and H; groups: G"""
    B, H = heads
    if bias.shape[1] == bias.shape[2] == 1:  # the bias is the same for all queries
        return bias.expand(B, groups, 1, -1).flatten(0, 1)
    return bias.expand(B, H, -1, -1).reshape(B * groups, -1, bias.shape[3])


def attention_of_transposed(
    queries: Tensor,
    transposed_keys: Tensor,
    values: Tensor,
    bias: Tensor,
    dropout_probability: float = 0.0,
    extra_sums: Projection | None = None,
) -> Tensor:
    """Compute equation 1 with transposed keys: (B, H, T, V). With few queries, this is several times faster on a CPU.

    The queries of all heads that share keys are multiplied at once.

    queries: (B, H, T, K); transposed_keys: (B * G, K, S); values: (B, G, S, V)
    bias: (B * G, 1 or H / G * T, S), added to the scores: minus infinity where a key is masked
    extra_sums: a function from weights (B, H, T, S) to a term that is added to the weighted sums, (B, H, T, V)
    """
    B, H, T, K = queries.shape
    by_group = queries.reshape(len(transposed_keys), -1, K)  # BG H/G*T K
    with not_cast(queries, transposed_keys, values):
        scores = torch.baddbmm(bias, by_group, transposed_keys, alpha=K**-0.5)  # BG H/G*T S
        weights = scores.softmax(-1)
        if not torch.compiler.is_compiling() and (recorded := _recorded.get()) is not None:
            recorded.append(weights.view(B, H, T, -1))
        if dropout_probability:
            weights = dropout(weights, dropout_probability, True)
        sums = torch.bmm(weights, values.flatten(0, 1)).view(B, H, T, -1)  # (B, H, T, V)
        return sums if extra_sums is None else sums + extra_sums(weights.view(B, H, T, -1))


def append_to_cache(cache: Tensor, new: Tensor, used: int, dim: int) -> Tensor:
    """Write `new` after the first `used` entries of a cache. A full cache is copied into one at least twice as large.

    cache: (B, G, C, V) with dim 2, or (B, G, K, C) with dim 3; new: the same shape with W instead of C
    """
    capacity, count = cache.shape[dim], new.shape[dim]
    if used + count > capacity:
        shape = list(cache.shape)
        shape[dim] = max(2 * capacity, used + INITIAL_CACHE_STEPS * count)
        larger = cache.new_empty(shape)
        larger.narrow(dim, 0, used).copy_(cache.narrow(dim, 0, used))
        cache = larger
    cache.narrow(dim, used, count).copy_(new)
    return cache


KeysValues = tuple[Tensor, Tensor]  # transposed keys (B, G, K, S or C) and values (B, G, S or C, V)
CrossAttentionStep = Callable[[Tensor, KeysValues, Tensor], Tensor]
"""(states (N, D), memory, bias (B * G, 1, S) with minus infinity at padding) -> (N, D): attention for one position."""


class AttentionLayer(nn.Module):
    """The base class of self-attention and cross-attention, with the heads and the projection of their weighted sums.

    parts: number and width of the heads for queries, keys and values
    """

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__()
        self.shape = shape
        self.parts = [(shape.heads, shape.keys), (shape.groups, shape.keys), (shape.groups, shape.values)]
        self.output = self.linear(shape.heads * shape.values, [shape.width])

    def linear(self, inputs: int, outputs: Sequence[int]) -> Linear:
        """A linear layer that computes several outputs at once."""
        linear = Linear(inputs, sum(outputs), bias=self.shape.bias)
        for part in linear.weight.split(list(outputs)):  # initialised separately, as in Tensor2Tensor
            nn.init.xavier_uniform_(part)
        if self.shape.bias:
            nn.init.zeros_(linear.bias)
        return linear

    def projection(self, *parts: tuple[int, int]) -> Linear:
        """A projection from states to heads. parts: see AttentionLayer"""
        return self.linear(self.shape.width, [heads * width for heads, width in parts])

    def split(self, states: Tensor, *parts: tuple[int, int]) -> list[Tensor]:
        """Split the output of a projection, (B, T, ...), into its parts, (B, heads, T, width) each."""
        by_part = states.split([heads * width for heads, width in parts], -1)
        return [part.unflatten(-1, sizes).transpose(1, 2) for part, sizes in zip(by_part, parts, strict=True)]

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """Compute `attention` and the output projection: (B, T, D)"""
        probability = self.shape.dropout if self.training else 0.0
        return self.merged(attention(queries, keys, values, mask, causal, probability))

    def merged(self, sums: Tensor) -> Tensor:
        """Project the weighted sums of all heads: (B, H, T, V) -> (B, T, D)"""
        merged: Tensor = self.output(sums.transpose(1, 2).flatten(2))
        return merged


class CrossAttention(AttentionLayer):
    """Attention to a memory. One matrix computes its keys and values, once per sentence."""

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__(shape)
        self.queries = self.projection(self.parts[0])
        self.keys_values = self.projection(*self.parts[1:])

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project a memory (B, S, D) to keys (B, G, S, K) and values (B, G, S, V)."""
        keys, values = self.split(self.keys_values(memory), *self.parts[1:])
        return keys, values

    def forward(self, states: Tensor, memory: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """states: (B, T, D) -> (B, T, D). memory: from `project_memory`; mask: (B, 1, 1, S), True where visible"""
        [queries] = self.split(self.queries(states), self.parts[0])
        return self.attend(queries, *memory, mask, False)

    def search_step(self) -> CrossAttentionStep:
        """The function that computes the layer during one search, without gradients."""
        project, project_output = self.queries.search_step(), self.output.search_step()

        def step(states: Tensor, memory: KeysValues, bias: Tensor) -> Tensor:
            transposed_keys, values = memory
            [queries] = self.split(project(states).unflatten(0, (len(values), -1)), self.parts[0])  # (B, H, W, K)
            sums = attention_of_transposed(queries, transposed_keys.flatten(0, 1), values, bias)  # (B, H, W, V)
            return project_output(sums.transpose(1, 2).reshape(len(states), -1))

        return step
