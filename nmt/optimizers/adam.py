"""Adam (Kingma and Ba, 2015), with the values of "Attention Is All You Need", section 5.3, as defaults."""

from dataclasses import dataclass
from typing import Any

import torch

from nmt import opt, register
from nmt.optimizers.base import UNSET, Parameters, can_fuse, check_adam


@dataclass(frozen=True, kw_only=True)
class AdamOptions:
    adam_betas: tuple[float, float] = opt((0.9, 0.98), "decay of the gradient's first and second moments")
    adam_eps: float = opt(1e-9, "added to the root of the second moment; 1e-9 in the paper")
    weight_decay: float = opt(0.0, "L2 penalty added to the gradient; 0 in the paper", aliases=("wd",))

    def __post_init__(self) -> None:
        check_adam(self.adam_betas, self.adam_eps, self.weight_decay)


@register("optimizer", "adam", AdamOptions)
class Adam(torch.optim.Adam):
    """Adam: each weight's step is its mean gradient over the root of its mean squared gradient."""

    def __init__(self, options: AdamOptions, parameters: Parameters) -> None:
        weights: list[Any] = list(parameters)
        super().__init__(
            weights,
            lr=UNSET,
            betas=options.adam_betas,
            eps=options.adam_eps,
            weight_decay=options.weight_decay,
            fused=can_fuse(weights),
        )
