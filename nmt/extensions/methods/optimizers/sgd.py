"""Stochastic gradient descent, optionally with momentum (Sutskever et al., 2013)."""

import torch

from nmt import register
from nmt.extensions.methods.optimizers.options import SgdOptions
from nmt.optimizers.base import UNSET_LR, Groups, Uncompiled, has_sharded


@register("optimizer", "sgd", SgdOptions)
class Sgd(Uncompiled, torch.optim.SGD):
    """Gradient descent: each weight steps along its gradient, or along a running sum of gradients."""

    def __init__(self, options: SgdOptions, parameters: Groups) -> None:
        super().__init__(
            parameters,
            lr=UNSET_LR,
            momentum=options.momentum,
            nesterov=options.nesterov,
            weight_decay=options.weight_decay,
            fused=not has_sharded(parameters),
        )
