"""Stochastic gradient descent, with momentum (Sutskever et al., 2013) on request."""

from dataclasses import dataclass
from typing import Any

import torch

from nmt import opt, register
from nmt.dist import is_sharded
from nmt.optimizers.base import UNSET, Parameters, can_fuse, check_weight_decay, tensors_of


@dataclass(frozen=True, kw_only=True)
class SgdOptions:
    momentum: float = opt(0.0, "part of the last step kept in the next; 0 is plain gradient descent")
    nesterov: bool = opt(False, "look ahead along the momentum before the step (Nesterov, 1983)")
    weight_decay: float = opt(0.0, "L2 penalty added to the gradient", aliases=("wd",))

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum is {self.momentum}; it must be at least 0 and below 1")
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov looks ahead along the momentum, which is 0; give a --momentum such as 0.9")
        check_weight_decay(self.weight_decay)


@register("optimizer", "sgd", SgdOptions)
class Sgd(torch.optim.SGD):
    """Gradient descent: each weight's step is its gradient, or a running sum of them."""

    def __init__(self, options: SgdOptions, parameters: Parameters) -> None:
        weights: list[Any] = list(parameters)
        super().__init__(
            weights,
            lr=UNSET,
            momentum=options.momentum,
            nesterov=options.nesterov,
            weight_decay=options.weight_decay,
            fused=can_fuse(weights) and not any(map(is_sharded, tensors_of(weights))),
        )
