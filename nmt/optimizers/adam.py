"""Adam (Kingma and Ba, 2015), by default with the values of "Attention Is All You Need", section 5.3.

AdamW decouples the weight decay (Loshchilov and Hutter, 2019).
"""

import torch

from nmt import opt, options_class, register
from nmt.optimizers.base import UNSET_LR, Groups, can_fuse


@options_class
class AdamOptions:
    adam_betas: tuple[float, float] = opt(
        (0.9, 0.98), "decay of the gradient's first and second moments", minimum=0, below=1
    )
    adam_eps: float = opt(1e-9, "added to the root of the second moment; 1e-9 in the paper", above=0)
    weight_decay: float = opt(0.0, "L2 penalty added to the gradient; 0 in the paper", aliases=("wd",), minimum=0)


@register("optimizer", "adam", AdamOptions)
class Adam(torch.optim.Adam):
    """Adam: the mean gradient of each weight over the root of its mean squared gradient."""

    def __init__(self, options: AdamOptions, parameters: Groups) -> None:
        betas, eps, decay = options.adam_betas, options.adam_eps, options.weight_decay
        super().__init__(parameters, UNSET_LR, betas, eps, decay, fused=can_fuse(parameters))


@options_class
class AdamWOptions(AdamOptions):
    weight_decay: float = opt(
        0.01, "share of each weight subtracted an update, times the learning rate", aliases=("wd",), minimum=0
    )


@register("optimizer", "adamw", AdamWOptions)
class AdamW(torch.optim.AdamW):
    """Adam whose weight decay is not part of the gradient."""

    def __init__(self, options: AdamWOptions, parameters: Groups) -> None:
        betas, eps, decay = options.adam_betas, options.adam_eps, options.weight_decay
        super().__init__(parameters, UNSET_LR, betas, eps, decay, fused=can_fuse(parameters))
