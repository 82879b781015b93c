"""The shape of mixtures of experts, by the options of a model."""

from typing import Any

from nmt.extensions.variants.nn.moe import ExpertShape


def expert_shape(o: Any, width: int, inner: int, dropout: float) -> ExpertShape:
    """The sizes of a model's mixtures. See ExpertShape. o: the options of a model with experts"""
    gates = o.experts, o.active_experts, o.expert_groups, o.gates, o.importance_weight, o.load_weight
    return ExpertShape(width, inner, *gates, dropout)
