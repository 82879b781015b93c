"""Adam for the first updates, then plain gradient descent, as GNMT was trained (Wu et al., 2016, section 8.3)."""

from collections.abc import Callable

import torch

from nmt import register
from nmt.optimizers.base import UNSET_LR, Groups, can_fuse
from nmt.optimizers.options import AdamSgdOptions


@register("optimizer", "adam-sgd", AdamSgdOptions)
class AdamSgd(torch.optim.Adam):
    """Adam for some updates, then gradient descent with a learning rate of its own."""

    def __init__(self, options: AdamSgdOptions, parameters: Groups) -> None:
        betas, eps, decay = options.adam_betas, options.adam_eps, options.weight_decay
        super().__init__(parameters, UNSET_LR, betas, eps, decay, fused=can_fuse(parameters))
        self.options = options

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make an update; closure is not called. Adam's count of updates decides which."""
        updates = max((int(state["step"]) for state in self.state.values()), default=0)
        if updates < self.options.adam_updates:
            super().step()
            return
        for group in self.param_groups:
            learning_rate = group["lr"] * self.options.sgd_lr_factor
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - learning_rate * group["weight_decay"])
                    parameter.add_(parameter.grad, alpha=-learning_rate)
                    if state := self.state[parameter]:
                        state["step"] += 1
