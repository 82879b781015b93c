"""Adadelta (Zeiler, 2012): scales each gradient by the ratio of recent steps to recent gradients."""

import torch

from nmt import register
from nmt.extensions.methods.optimizers.options import AdadeltaOptions
from nmt.optimizers.base import UNSET_LR, Groups, Uncompiled


@register("optimizer", "adadelta", AdadeltaOptions)
class Adadelta(Uncompiled, torch.optim.Adadelta):
    """Adadelta: scales gradients by the running RMS of steps over the running RMS of gradients. Use a learning rate near 1."""

    def __init__(self, options: AdadeltaOptions, parameters: Groups) -> None:
        rho, eps, decay = options.adadelta_rho, options.adadelta_eps, options.weight_decay
        super().__init__(parameters, UNSET_LR, rho, eps, decay)
