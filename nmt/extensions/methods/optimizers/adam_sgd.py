"""Adam followed by plain gradient descent, as in the training of GNMT (Wu et al., 2016, section 8.3)."""

from collections.abc import Callable
from typing import Any

import torch

from nmt import register
from nmt.extensions.methods.optimizers.options import AdamSgdOptions
from nmt.optimizers.adam import Adam
from nmt.optimizers.base import Groups


@register("optimizer", "adam-sgd", AdamSgdOptions)
class AdamSgd(Adam):
    """Adam for some updates, then gradient descent with a different learning rate."""

    def __init__(self, options: AdamSgdOptions, parameters: Groups) -> None:
        super().__init__(options, parameters)
        self.options = options
        self._updates: int | None = (
            None  # updates so far; None until they are read from the state, because reading waits for the GPU
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._updates = None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make an update; closure is not called. Adam's count of updates selects the method."""
        if self._updates is None:
            self._updates = max((int(state["step"]) for state in self.state.values()), default=0)
        self._updates += 1
        if self._updates <= self.options.adam_updates:
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
