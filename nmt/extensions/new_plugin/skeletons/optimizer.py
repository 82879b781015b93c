"""An optimizer: Lion, which steps in the direction of its momentum's sign (Chen et al., 2023, algorithm 2).

nmt train --plugin my_optimizer.py --optimizer my-optimizer --schedule inverse-sqrt --lr 0.0001 --data DATA --output RUN
nmt status RUN
"""

from collections.abc import Callable
from typing import Any

import torch

from nmt import opt, options_class, register


@options_class
class MyOptimizerOptions:  # CHANGE: each option becomes a flag; the learning rate comes from --schedule
    beta1: float = opt(0.9, "weight of the old momentum in a step", minimum=0, below=1)
    beta2: float = opt(0.99, "share of the old momentum that is kept", minimum=0, below=1)
    decay: float = opt(0.0, "weight decay per update, multiplied by the learning rate", minimum=0)


@register("optimizer", "my-optimizer", MyOptimizerOptions)
class MyOptimizer(torch.optim.Optimizer):
    """Steps of equal size in the direction of the momentum's sign."""

    def __init__(self, options: MyOptimizerOptions, parameters: list[dict[str, Any]]) -> None:
        super().__init__(parameters, {"lr": 0.0})  # training sets group["lr"] before each update
        self.options = options

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all parameters once. Checkpoints store `self.state`."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                # CHANGE: the step
                step = momentum.lerp(parameter.grad, 1 - self.options.beta1).sign()
                parameter.mul_(1 - group["lr"] * self.options.decay).sub_(step, alpha=group["lr"])
                momentum.lerp_(parameter.grad, 1 - self.options.beta2)
