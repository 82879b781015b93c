"""AdamW: Adam with weight decay apart from the gradient (Loshchilov and Hutter, 2019)."""

from dataclasses import dataclass
from typing import Any

import torch

from nmt import opt, register
from nmt.optimizers.base import UNSET, Parameters, can_fuse, check_adam


@dataclass(frozen=True, kw_only=True)
class AdamWOptions:
    adam_betas: tuple[float, float] = opt((0.9, 0.98), "decay of the gradient's first and second moments")
    adam_eps: float = opt(1e-9, "added to the root of the second moment")
    weight_decay: float = opt(
        0.01, "part of each weight taken away an update, times the learning rate", aliases=("wd",)
    )

    def __post_init__(self) -> None:
        check_adam(self.adam_betas, self.adam_eps, self.weight_decay)


@register("optimizer", "adamw", AdamWOptions)
class AdamW(torch.optim.AdamW):
    """Adam with weights that shrink by themselves, not through the gradient."""

    def __init__(self, options: AdamWOptions, parameters: Parameters) -> None:
        weights: list[Any] = list(parameters)
        super().__init__(
            weights,
            lr=UNSET,
            betas=options.adam_betas,
            eps=options.adam_eps,
            weight_decay=options.weight_decay,
            fused=can_fuse(weights),
        )
