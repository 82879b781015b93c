"""Adafactor: Adam's second moment as the product of two vectors (Shazeer and Stern, 2018, algorithms 4 and 5)."""

from dataclasses import dataclass
from typing import Any

import torch

from nmt import UserError, opt, register
from nmt.dist import is_sharded
from nmt.optimizers.base import UNSET, Parameters, check_weight_decay, tensors_of


@dataclass(frozen=True, kw_only=True)
class AdafactorOptions:
    adafactor_beta2_decay: float = opt(
        -0.8, "power c of 1 - update^c, the decay of the second moment; -0.8 in the paper"
    )
    adafactor_eps: tuple[float, float] = opt(
        (1e-15, 1e-3),
        "the least root of the second moment (1e-15 is the paper's 1e-30 before the root), "
        "and the least root mean square of a matrix that scales its step",
    )
    adafactor_clip: float = opt(1.0, "greatest root mean square of a matrix's step before scaling, d in the paper")
    weight_decay: float = opt(0.0, "part of each weight taken away an update, times the learning rate", aliases=("wd",))

    def __post_init__(self) -> None:
        if not self.adafactor_beta2_decay <= 0:
            raise ValueError(f"adafactor_beta2_decay is {self.adafactor_beta2_decay}; it must be at most 0")
        # torch squares the first one in float32: below 1e-18 a word without a gradient would divide 0 by 0
        if not (self.adafactor_eps[0] >= 1e-18 and self.adafactor_eps[1] > 0):
            raise ValueError(
                f"adafactor_eps is {self.adafactor_eps}; the first must be at least 1e-18, the second above 0"
            )
        if not self.adafactor_clip >= 1:
            raise ValueError(f"adafactor_clip is {self.adafactor_clip}; it must be at least 1")
        check_weight_decay(self.weight_decay)


@register("optimizer", "adafactor", AdafactorOptions)
class Adafactor(torch.optim.Adafactor):
    """Adam without momentum, in hardly any memory; its learning rate is a part of each matrix's own size.

    The step of a matrix is min(lr, update^-0.5) times its root mean square, so a learning rate near 0.01 is usual.
    """

    def __init__(self, options: AdafactorOptions, parameters: Parameters) -> None:
        weights: list[Any] = list(parameters)
        if any(map(is_sharded, tensors_of(weights))):
            raise UserError("adafactor looks at whole matrices, which --engine fsdp shares out (take ddp, or adam)")
        super().__init__(
            weights,
            lr=UNSET,
            beta2_decay=options.adafactor_beta2_decay,
            eps=options.adafactor_eps,
            d=options.adafactor_clip,
            weight_decay=options.weight_decay,
        )
