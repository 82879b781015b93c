"""Adafactor: Adam's second moment as the product of two vectors (Shazeer and Stern, 2018, algorithms 4 and 5)."""

from typing import Final

import torch

from nmt import UserError, opt, options_class, register
from nmt.optimizers.base import UNSET_LR, Groups, has_sharded

MIN_MOMENT_EPS: Final = 1e-18  # torch squares it in float32: a smaller one would divide 0 by 0 for unused embeddings


@options_class
class AdafactorOptions:
    adafactor_beta2_decay: float = opt(
        -0.8, "power c of 1 - update^c, the decay of the second moment; -0.8 in the paper", maximum=0
    )
    adafactor_eps: tuple[float, float] = opt(
        (1e-15, 1e-3),
        "least root of the second moment (1e-15 is the paper's 1e-30 before the root), "
        "and least root mean square of a matrix that scales its step",
        above=0,
    )
    adafactor_clip: float = opt(
        1.0, "greatest root mean square of a matrix's step before scaling, d in the paper", minimum=1
    )
    weight_decay: float = opt(
        0.0, "share of each weight subtracted an update, times the learning rate", aliases=("wd",), minimum=0
    )

    def __post_init__(self) -> None:
        if self.adafactor_eps[0] < MIN_MOMENT_EPS:
            raise ValueError(f"--adafactor-eps {self.adafactor_eps[0]}: the first must be at least {MIN_MOMENT_EPS}")


@register("optimizer", "adafactor", AdafactorOptions)
class Adafactor(torch.optim.Adafactor):
    """Adam without momentum and with little memory; its learning rate is relative to the size of each matrix.

    The step of a matrix is min(lr, update^-0.5) times its root mean square, so a learning rate near 0.01 is usual.
    """

    def __init__(self, options: AdafactorOptions, parameters: Groups) -> None:
        if has_sharded(parameters):
            raise UserError(
                "--optimizer adafactor: needs whole matrices, and --engine fsdp shards them (give ddp, or adam)"
            )
        super().__init__(
            parameters,
            lr=UNSET_LR,
            beta2_decay=options.adafactor_beta2_decay,
            eps=options.adafactor_eps,
            d=options.adafactor_clip,
            weight_decay=options.weight_decay,
        )
