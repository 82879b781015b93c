"""Stochastic gradient descent, optionally with momentum (Sutskever et al., 2013)."""

import torch

from nmt import opt, options_class, register
from nmt.optimizers.base import UNSET_LR, Groups, can_fuse, has_sharded


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

    def __init__(self, options: SgdOptions, parameters: Groups) -> None:
        super().__init__(
            parameters,
            lr=UNSET_LR,
            momentum=options.momentum,
            nesterov=options.nesterov,
            weight_decay=options.weight_decay,
            fused=can_fuse(parameters) and not has_sharded(parameters),
        )
