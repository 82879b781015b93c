"""What models with experts share: the shape of their mixtures, and the positions that reach experts."""

from typing import Any

from torch import Tensor

from nmt.nn.moe import ExpertShape
from nmt.symbols import EOS, PAD


def expert_shape(o: Any, width: int, inner: int, dropout: float) -> ExpertShape:
    """The sizes of a model's mixtures. See ExpertShape. o: the options of a model with experts"""
    gates = o.experts, o.active_experts, o.expert_groups, o.gates, o.importance_weight, o.load_weight
    return ExpertShape(width, inner, *gates, dropout)


def token_positions(ids: Tensor) -> Tensor:
    """The flat positions of tokens: (N,). ids: (...), with padding"""
    return (ids != PAD).flatten().nonzero().squeeze(1)


def predicting_positions(ids: Tensor) -> Tensor:
    """The flat positions of target tokens after which something is predicted, all before EOS: (N,). ids: (...)"""
    return ((ids != PAD) & (ids != EOS)).flatten().nonzero().squeeze(1)
