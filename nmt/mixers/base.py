"""The interface of mixers, the parts of a Transformer layer that read other positions of the same text.

A registered mixer is built as `cls(options, shape)`, with the Transformer's options, which include the mixer's, and the shape of
an attention layer. With some options, a mixer replaces another one; its options class declares this (see `registry.selected`).
Dimensions: B sentences, T positions, D width, N rows of a search, G key and value heads.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from nmt.nn.attention import AttentionShape
from nmt.nn.search_state import State

Past = dict[str, Tensor]
MixerStep = Callable[[Tensor, Past, Any], tuple[Tensor, Past]]
"""(states (N, D) of the next position, past, context from `before_step`) -> the output (N, D), and the past after the step.

The caller may write into the output. The first past comes from `begin`.
"""


class FirstPast(NamedTuple):
    """The past before the first step of a search. It is empty.

    sentences, hypotheses: tensors by name, (B, ...) and (N, ...), for `State`
    """

    sentences: Mapping[str, Tensor]
    hypotheses: Mapping[str, Tensor]


class Mixer(nn.Module):
    """The part of a layer in which each position reads other positions of the same text.

    can_be_captured: whether CUDA graphs can repeat its step, which must then read entries as SelfAttention does
    residual_outputs: name patterns of its last weights; a layer with zeros there leaves its input unchanged. Empty if it has none
    """

    can_be_captured: bool = False
    residual_outputs: ClassVar[Sequence[str]] = ()

    @classmethod
    def decoder_shape(cls, options: Any, shape: AttentionShape) -> AttentionShape:
        """The shape of all attention layers in the decoder. Called on the self-attention mixer. shape: the encoder's shape"""
        return shape

    @abstractmethod
    def forward(self, states: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """states: (B, T, D) -> (B, T, D)

        mask: (B, 1, 1, T), False at padding; not needed if causal, because padding follows the tokens
        causal: whether each position sees only itself and earlier positions, as in a decoder
        """

    @abstractmethod
    def begin(self, memory: Tensor, dtype: torch.dtype) -> FirstPast:
        """The past before a search. memory: (B, S, D); dtype: the type of the projections"""

    @abstractmethod
    def search_step(self) -> MixerStep:
        """The function that computes the mixer at the next position of a search, without gradients."""

    def before_step(self, tokens: Tensor, state: State, sentences: int) -> Any:
        """Compute the context of a step once for the mixers of all layers.

        tokens: (N,) the tokens that the step reads
        state: the state before the step; its `append_entries` returns the past of each row
        sentences: B
        """
        return state.length

    def flops(self, length: Tensor) -> Tensor:
        """The FLOPs for texts of these lengths, apart from linear layers: (N,) int64. length: (N,) int64"""
        return torch.zeros_like(length)

    def state_numbers(self, length: int) -> int:
        """The number of values in the past of one hypothesis after `length` steps."""
        return 0
