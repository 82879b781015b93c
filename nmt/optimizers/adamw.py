"""AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

from typing import Any

import torch

from nmt import opt, options_class, register
from nmt.optimizers.adam import AdamOptions
from nmt.optimizers.base import UNSET_LR, Parameters, can_fuse


@options_class
class AdamWOptions(AdamOptions):
    weight_decay: float = opt(
        0.01, "share of each weight subtracted an update, times the learning rate", aliases=("wd",), minimum=0
    )


@register("optimizer", "adamw", AdamWOptions)
class AdamW(torch.optim.AdamW):
    """Adam whose weight decay is not part of the gradient."""

    def __init__(self, options: AdamWOptions, parameters: Parameters) -> None:
        groups: list[Any] = list(parameters)
        super().__init__(
            groups,
            lr=UNSET_LR,
            betas=options.adam_betas,
            eps=options.adam_eps,
            weight_decay=options.weight_decay,
            fused=can_fuse(groups),
        )
