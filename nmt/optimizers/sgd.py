"""Stochastic gradient descent, optionally with momentum (Sutskever et al., 2013)."""

from typing import Any

import torch

from nmt import opt, options_class, register
from nmt.dist import is_sharded
from nmt.optimizers.base import UNSET_LR, Parameters, can_fuse, tensors_of


@options_class
class SgdOptions:
    momentum: float = opt(0.0, "share of the last step kept in the next; 0 is plain descent", minimum=0, below=1)
    nesterov: bool = opt(False, "look ahead along the momentum before the step (Nesterov, 1983)")
    weight_decay: float = opt(0.0, "L2 penalty added to the gradient", aliases=("wd",), minimum=0)

    def __post_init__(self) -> None:
        if self.nesterov and self.momentum == 0:
            raise ValueError("--nesterov: looks ahead along the momentum, which is 0 (give --momentum 0.9)")


@register("optimizer", "sgd", SgdOptions)
class Sgd(torch.optim.SGD):
    """Gradient descent: the step of each weight is its gradient, or a running sum of gradients."""

    def __init__(self, options: SgdOptions, parameters: Parameters) -> None:
        groups: list[Any] = list(parameters)
        super().__init__(
            groups,
            lr=UNSET_LR,
            momentum=options.momentum,
            nesterov=options.nesterov,
            weight_decay=options.weight_decay,
            fused=can_fuse(groups) and not any(map(is_sharded, tensors_of(groups))),
        )
