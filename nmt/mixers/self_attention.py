"""Multi-head self-attention (Vaswani et al., 2017, section 3.2.3).

Dimensions: B sentences, T positions, D width, H heads, G key and value heads (each shared by H / G query heads), K and V
width of a head's keys and values; in a search W hypotheses per sentence, N = B * W rows, E entries, C capacity of a cache in
entries.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt import register
from nmt.mixers.base import FirstPast, Mixer, MixerStep, Past
from nmt.nn.attention import AttentionLayer, AttentionShape, append_to_cache, attention_of_transposed, grouped_bias
from nmt.nn.search_state import State
from nmt.options import NoOptions


class Entries(NamedTuple):
    """The entries of a search at one step.

    used: number of entries per sentence before the step
    bias: (B * G, H / G * W, E), 0 for a hypothesis' own ancestors and minus infinity for other entries. Thus the cache does
        not change when hypotheses are reordered
    """

    used: int
    bias: Tensor

    def appended(self, past: Past, key: Tensor, value: Tensor) -> Past:
        """Append W entries to the past. key: (B, G, W, K); value: (B, G, W, V)"""
        keys = append_to_cache(past["keys"], key.mT, self.used, 3)  # (B, G, K, C)
        return {"keys": keys, "values": append_to_cache(past["values"], value, self.used, 2)}  # (B, G, C, V)

    def visible(self, past: Past) -> tuple[Tensor, Tensor]:
        """The transposed keys (B * G, K, E) and values (B, G, E, V) of a past."""
        end = self.bias.shape[2]
        return past["keys"].flatten(0, 1)[:, :, :end], past["values"][:, :, :end]


@register("mixer", "self-attention", NoOptions)
class SelfAttention(AttentionLayer, Mixer):
    """The paper's self-attention, with one matrix for queries, keys and values."""

    residual_outputs = ("output.*",)

    def __init__(self, options: object, shape: AttentionShape) -> None:
        super().__init__(shape)
        self.queries_keys_values = self.projection(*self.parts)

    def forward(self, states: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """See Mixer."""
        queries, keys, values = self.split(self.queries_keys_values(states), *self.parts)
        return self.attend(queries, keys, values, mask, causal)

    def begin(self, memory: Tensor, dtype: torch.dtype) -> FirstPast:
        """See Mixer. The past contains the transposed keys (B, G, K, C) and values (B, G, C, V) of every entry."""
        B, (_, (G, K), (_, V)) = len(memory), self.parts
        keys, values = memory.new_empty(B, G, K, 0, dtype=dtype), memory.new_empty(B, G, 0, V, dtype=dtype)
        return FirstPast({"keys": keys, "values": values}, {})

    def visible_entries(self, tokens: Tensor, state: State, sentences: int) -> Tensor:
        """The entries that each row sees at a step, including its own: (N, t). See `before_step`"""
        return state.append_entries(tokens, sentences)

    def before_step(self, tokens: Tensor, state: State, sentences: int) -> Any:
        """See Mixer. The context is an Entries object."""
        used, visible = state.num_entries, self.visible_entries(tokens, state, sentences)
        bias = torch.full((len(tokens), state.num_entries), -math.inf, device=tokens.device)  # (N, E)
        bias = bias.scatter_(1, visible, 0.0).view(sentences, 1, -1, state.num_entries)  # (B, 1, W, E)
        return Entries(used, grouped_bias(bias, (sentences, self.shape.heads), self.shape.groups))

    def search_step(self) -> MixerStep:
        """See Mixer. The context is an Entries object."""
        project, project_output = self.queries_keys_values.search_step(), self.output.search_step()

        def step(states: Tensor, past: Past, entries: Entries) -> tuple[Tensor, Past]:
            rows = project(states).unflatten(0, (len(past["values"]), -1))  # B W ...
            queries, key, value = self.split(rows, *self.parts)
            past = entries.appended(past, key, value)
            sums = attention_of_transposed(queries, *entries.visible(past), entries.bias)  # (B, H, W, V)
            return project_output(sums.transpose(1, 2).reshape(len(states), -1)), past

        return step

    def flops(self, length: Tensor) -> Tensor:
        """See Mixer. Masked scores are counted, because they are computed."""
        return length**2 * 2 * self.shape.heads * (self.shape.keys + self.shape.values)

    def state_numbers(self, length: int) -> int:
        """See Mixer. Counts keys and values."""
        return length * self.shape.groups * (self.shape.keys + self.shape.values)
