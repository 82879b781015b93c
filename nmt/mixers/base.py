"""The interface of mixers: how a layer of the Transformer reads the other positions of its own text.

A registered mixer is built as `cls(options, shape)`, with the options of the Transformer, its own among them, and the shape of
an attention. What stands in for another mixer under some options says so in its options class (see `registry.selected`).
Dimensions: B sentences, T positions, D width, N rows of a search, G heads of keys and values.
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
"""(states (N, D) of the next position, past, context of `before_step`) -> the output (N, D), and the past after the step.

The caller may write into the output. The first past is that of `begin`.
"""


class FirstPast(NamedTuple):
    """The past before the first step of a search: nothing, in tensors of the right sizes.

    sentences, hypotheses: by name, for `State`: (B, ...) and (N, ...)
    """

    sentences: Mapping[str, Tensor]
    hypotheses: Mapping[str, Tensor]


class Mixer(nn.Module):
    """How each position reads others of its text.

    can_be_captured: whether CUDA graphs can repeat its step, which is then that of SelfAttention over entries
    residual_outputs: patterns of its weights that are zero in a layer that changes nothing; none if there are no such
    """

    can_be_captured: bool = False
    residual_outputs: ClassVar[Sequence[str]] = ()

    @classmethod
    def decoder_shape(cls, options: Any, shape: AttentionShape) -> AttentionShape:
        """The shape of all attention in the decoder, by that in the encoder. Asked of what stands for self-attention."""
        return shape

    @abstractmethod
    def forward(self, states: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """states: (B, T, D) -> (B, T, D)

        mask: (B, 1, 1, T), False at padding; without effect if causal, since padding follows the tokens
        causal: whether a position sees no later one, as in a decoder
        """

    @abstractmethod
    def begin(self, memory: Tensor, dtype: torch.dtype) -> FirstPast:
        """The past before a search. memory: (B, S, D); dtype: of projections"""

    @abstractmethod
    def search_step(self) -> MixerStep:
        """The mixer at the next position of a search, without gradient."""

    def before_step(self, tokens: Tensor, state: State, sentences: int) -> Any:
        """What the mixers of all layers need of a step, computed once.

        tokens: (N,) that the step reads; state: before it, of which `append_entries` gives the rows' pasts; sentences: B
        """
        return state.length

    def flops(self, length: Tensor) -> Tensor:
        """FLOPs of texts but for linear layers: (N,) int64. length: (N,) int64"""
        return torch.zeros_like(length)

    def state_numbers(self, length: int) -> int:
        """Numbers of the past of one hypothesis after so many steps."""
        return 0
