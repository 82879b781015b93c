"""Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019).

The defaults are those of "Attention Is All You Need", section 5.3.
"""

import torch

from nmt import register
from nmt.optimizers.base import UNSET_LR, Groups, Uncompiled
from nmt.optimizers.options import AdamOptions, AdamWOptions


@register("optimizer", "adam", AdamOptions)
class Adam(Uncompiled, torch.optim.Adam):
    """Adam: each step follows a weight's mean gradient, divided by the root of its mean squared gradient."""

    def __init__(self, options: AdamOptions, parameters: Groups) -> None:
        betas, eps, decay = options.adam_betas, options.adam_eps, options.weight_decay
        super().__init__(parameters, UNSET_LR, betas, eps, decay, fused=True)


@register("optimizer", "adamw", AdamWOptions)
class AdamW(Uncompiled, torch.optim.AdamW):
    """Adam with decoupled weight decay, which is not part of the gradient."""

    def __init__(self, options: AdamWOptions, parameters: Groups) -> None:
        betas, eps, decay = options.adam_betas, options.adam_eps, options.weight_decay
        super().__init__(parameters, UNSET_LR, betas, eps, decay, fused=True)
