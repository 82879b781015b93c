"""Schedule-free AdamW (Defazio et al., 2024, algorithm 1): averages the weights instead of decaying the learning rate."""

from collections.abc import Callable

import torch
from torch import Tensor

from nmt import register
from nmt.dist import local_tensor
from nmt.extensions.methods.optimizers.options import ScheduleFreeOptions
from nmt.optimizers.base import UNSET_LR, Groups, Uncompiled


@register("optimizer", "schedule-free", ScheduleFreeOptions)
class ScheduleFree(Uncompiled, torch.optim.Optimizer):
    """AdamW on z, with gradients computed at y = (1 - b1) z + b1 x, between z and its average x.

    The model's weights are y. Checkpoints and validations use x; see nmt.optimizers.base.
    In the average x, the z of each update is weighted by the square of its learning rate.
    """

    def __init__(self, options: ScheduleFreeOptions, parameters: Groups) -> None:
        self.options = options
        super().__init__(parameters, {"lr": UNSET_LR, "weight_decay": options.weight_decay})
        self.averaged = {p: p.detach().clone() for group in self.param_groups for p in group["params"]}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make an update; closure is not called."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, group["lr"], group["weight_decay"])

    def _step(self, parameter: Tensor, lr: float, decay: float) -> None:
        state, (beta1, beta2) = self.state[parameter], self.options.adam_betas
        if not state:
            state["step"] = torch.zeros(())
            state["lr_squares"] = torch.zeros(
                (), dtype=parameter.dtype, device=parameter.device
            )  # sum of squared learning rates
            state["second_moment"], state["z"] = torch.zeros_like(parameter), parameter.detach().clone()
        state["step"] += 1
        state["lr_squares"] += lr**2
        y, gradient, x = map(local_tensor, (parameter, parameter.grad, self.averaged[parameter]))
        second, z = local_tensor(state["second_moment"]), local_tensor(state["z"])
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = (second / (1 - beta2 ** state["step"].item())).sqrt_().add_(self.options.adam_eps)
        z.addcdiv_(gradient, root, value=-lr).add_(y, alpha=-lr * decay)
        x.lerp_(z, lr**2 / state["lr_squares"].clamp(min=torch.finfo(z.dtype).tiny))
        torch.lerp(z, x, beta1, out=y)
