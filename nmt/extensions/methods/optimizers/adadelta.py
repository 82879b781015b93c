"""Adadelta (Zeiler, 2012): steps as large as the last ones, relative to the size of the gradients."""

import torch

from nmt import register
from nmt.extensions.methods.optimizers.options import AdadeltaOptions
from nmt.optimizers.base import UNSET_LR, Groups, Uncompiled


@register("optimizer", "adadelta", AdadeltaOptions)
class Adadelta(Uncompiled, torch.optim.Adadelta):
    """Adadelta: each step is a running root mean square of steps over that of gradients; its learning rate is near 1."""

    def __init__(self, options: AdadeltaOptions, parameters: Groups) -> None:
        rho, eps, decay = options.adadelta_rho, options.adadelta_eps, options.weight_decay
        super().__init__(parameters, UNSET_LR, rho, eps, decay)
