"""Variants of self-attention: a window, relative or rotary positions, and fewer heads for keys and values.

Dimensions: B sentences, T positions, D width, H heads, G heads of keys and values (each for H / G query heads), K and V
width of a head's keys and values; in a search, W hypotheses per sentence, N = B * W rows, E entries.
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt import register
from nmt.extensions.variants.mixers.options import AttentionVariantOptions
from nmt.extensions.variants.nn.relative import RelativePositions, RelativeShape
from nmt.extensions.variants.nn.rotary import rotated, rotations
from nmt.extensions.variants.positions.options import ROTARY
from nmt.mixers.base import MixerStep, Past
from nmt.mixers.self_attention import Entries, SelfAttention
from nmt.nn.attention import (
    AttentionLayer,
    AttentionShape,
    attention_of_transposed,
    grouped_bias,
    not_cast,
    visibility_bias,
)
from nmt.nn.search_state import State


class PlacedEntries(NamedTuple):
    """The entries of a search at one step, with their positions.

    entries: see Entries
    ages: (E,) int64, distance of each entry from the next position; None without relative positions
    rotation: rotation of the next position (see `rotations`); None without rotary positions
    """

    entries: Entries
    ages: Tensor | None
    rotation: Tensor | None


@register("mixer", "attention-variants", AttentionVariantOptions)
class VariedSelfAttention(SelfAttention):
    """Self-attention with a window, relative or rotary positions, or shared heads of keys and values.

    It is used instead of plain self-attention if an option requests any of these.
    """

    def __init__(self, options: Any, shape: AttentionShape) -> None:
        AttentionLayer.__init__(self, shape)
        o, sizes = options, (shape.heads, shape.keys, shape.values)
        self.relative: RelativePositions | None = None
        if o.positions == "relative":
            relative_shape = RelativeShape(o.relative_distance, o.relative_heads == "separate", o.relative_values)
            self.relative = RelativePositions(relative_shape, *sizes)
        self.queries_keys_values = self.projection(*self.parts)
        self.window: int | None = o.attention_window
        self.is_rotary: bool = o.positions in ROTARY

    @classmethod
    def decoder_shape(cls, options: Any, shape: AttentionShape) -> AttentionShape:
        """See Mixer."""
        return replace(shape, kv_heads=options.kv_heads)

    def forward(self, states: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """See Mixer."""
        if self.window is not None:
            mask, causal = window_mask(states.shape[1], self.window, mask, causal, states.device), False
        queries, keys, values = self.split(self.queries_keys_values(states), *self.parts)
        if self.is_rotary:
            rotation = rotations(0, states.shape[1], self.shape.keys, states.device)
            queries, keys = rotated(queries, rotation), rotated(keys, rotation)
        if self.relative is None:
            return self.attend(queries, keys, values, mask, causal)
        probability = self.shape.dropout if self.training else 0.0
        return self.merged(relative_attention(queries, keys, values, mask, causal, probability, self.relative))

    def visible_entries(self, tokens: Tensor, state: State, sentences: int) -> Tensor:
        """See SelfAttention: the entries in the window."""
        ancestors = super().visible_entries(tokens, state, sentences)
        return ancestors if self.window is None else ancestors[:, -self.window :]

    def before_step(self, tokens: Tensor, state: State, sentences: int) -> Any:
        """See Mixer. Returns Entries, or PlacedEntries if the step needs positions."""
        entries = super().before_step(tokens, state, sentences)
        if self.relative is None and not self.is_rotary:
            return entries
        ages = rotation = None
        if self.relative is not None:
            assert state.ancestors is not None
            ages = entry_ages(state.ancestors, state.num_entries)
        if self.is_rotary:
            rotation = rotations(state.length, 1, self.shape.keys, tokens.device)  # 1 2 K/2
        return PlacedEntries(entries, ages, rotation)

    def search_step(self) -> MixerStep:
        """See Mixer. The step's context is the result of `before_step`."""
        if self.relative is None and not self.is_rotary:
            return super().search_step()
        project, project_output = self.queries_keys_values.search_step(), self.output.search_step()

        def placed_step(states: Tensor, past: Past, placed: PlacedEntries) -> tuple[Tensor, Past]:
            rows = project(states).unflatten(0, (len(past["values"]), -1))  # B W ...
            queries, key, value = self.split(rows, *self.parts)
            if placed.rotation is not None:
                queries, key = rotated(queries, placed.rotation), rotated(key, placed.rotation)
            past = placed.entries.appended(past, key, value)
            sums = self._sums(queries, past, placed)  # B H W V
            return project_output(sums.transpose(1, 2).reshape(len(states), -1)), past

        return placed_step

    def _sums(self, queries: Tensor, past: Past, placed: PlacedEntries) -> Tensor:
        """The weighted sums of values at one step: (B, H, W, V). queries: (B, H, W, K)"""
        bias, relative = placed.entries.bias, self.relative
        keys, values = placed.entries.visible(past)
        if relative is None or placed.ages is None:
            return attention_of_transposed(queries, keys, values, bias)
        with not_cast(queries):
            age_scores = relative.past_scores(queries, placed.ages)  # B H W E
            bias = bias + age_scores.reshape(len(keys), -1, bias.shape[2])
        extra_sums = None if relative.values is None else partial(relative.past_sums, ages=placed.ages)
        return attention_of_transposed(queries, keys, values, bias, 0.0, extra_sums)

    def flops(self, length: Tensor) -> Tensor:
        """See Mixer."""
        plain = super().flops(length)
        return plain if self.relative is None else plain + self.relative.flops(length, self.shape.heads)


def relative_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    causal: bool,
    dropout_probability: float,
    relative: RelativePositions,
) -> Tensor:
    """Attention with relative positions, which fused kernels do not support: (B, H, T, V)."""
    with not_cast(queries, keys, values):
        bias = visibility_bias(queries, keys.shape[2], mask, causal) + relative.scores(queries)  # B H T T
        bias = grouped_bias(bias, queries.shape[:2], keys.shape[1])
        extra_sums = None if relative.values is None else relative.sums
        return attention_of_transposed(queries, keys.flatten(0, 1).mT, values, bias, dropout_probability, extra_sums)


def window_mask(length: int, window: int, mask: Tensor | None, causal: bool, device: torch.device) -> Tensor:
    """The mask of restricted self-attention (Vaswani et al., 2017, section 4): (B or 1, 1, T, T), True if visible.

    A query i sees the keys j with |i - j| <= (window - 1) // 2 or, if causal, with 0 <= i - j < window.

    mask: (B, 1, 1, T), True if a key is visible; ignored if causal
    """
    positions = torch.arange(length, device=device)
    offsets = positions[:, None] - positions  # T T, i - j
    if causal:
        return ((offsets >= 0) & (offsets < window))[None, None]
    near = (offsets.abs() <= (window - 1) // 2)[None, None]
    if mask is None:
        return near
    near = near & mask  # B 1 T T
    return near | (
        mask & ~near.any(-1, keepdim=True)
    )  # padding far from the sentence sees the whole sentence, so that no row is empty


def entry_ages(ancestors: Tensor, num_entries: int) -> Tensor:
    """The distance of each entry of a search from the newest position, the same for all sentences: (E,) int64.

    ancestors: (N, t), see State; entries that are not an ancestor of any hypothesis get 0
    """
    ages = torch.arange(ancestors.shape[1] - 1, -1, -1, device=ancestors.device).expand_as(ancestors)  # N t
    return ancestors.new_zeros(num_entries).scatter_(0, ancestors.flatten(), ages.flatten())
