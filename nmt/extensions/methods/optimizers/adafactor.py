"""Adafactor: stores Adam's second moment as the product of two vectors (Shazeer and Stern, 2018, algorithms 4 and 5)."""

import torch

from nmt import UserError, register
from nmt.extensions.methods.optimizers.options import AdafactorOptions
from nmt.optimizers.base import UNSET_LR, Groups, Uncompiled, has_sharded


@register("optimizer", "adafactor", AdafactorOptions)
class Adafactor(Uncompiled, torch.optim.Adafactor):
    """Adam without momentum and with little memory. The learning rate is relative to the size of each matrix.

    The step of a matrix is min(lr, update^-0.5) times its root mean square, so learning rates are usually near 0.01.
    """

    def __init__(self, options: AdafactorOptions, parameters: Groups) -> None:
        if has_sharded(parameters):
            raise UserError(
                "--optimizer adafactor and --engine fsdp cannot be combined: fsdp shards matrices (use --engine ddp)"
            )
        super().__init__(
            parameters,
            lr=UNSET_LR,
            beta2_decay=options.adafactor_beta2_decay,
            eps=options.adafactor_eps,
            d=options.adafactor_clip,
            weight_decay=options.weight_decay,
        )
