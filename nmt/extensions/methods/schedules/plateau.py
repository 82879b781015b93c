"""Reduces the learning rate when the validation loss stops falling. Only this schedule has a state."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from nmt import opt, options_class, register
from nmt.files import Count
from nmt.options import convert
from nmt.schedules.base import Schedule, lr_opt, warmup_factor, warmup_opt


@options_class
class PlateauOptions:
    lr: float = lr_opt(5e-4, "initial learning rate")
    warmup_updates: int = warmup_opt(0, "updates of linear warmup from 0", minimum=0)
    plateau_factor: float = opt(0.5, "factor applied to the learning rate at each reduction", above=0, below=1)
    plateau_patience: int = opt(
        3, "consecutive validations without a new best loss before the learning rate is reduced", minimum=1
    )
    plateau_every: bool = opt(False, "after the first reduction, reduce at every validation, as ConvS2S does")
    stop_lr: float = opt(0.0, "learning rate below which training stops; 1e-4 in ConvS2S", minimum=0)
    min_lr: float = opt(0.0, "minimum learning rate", aliases=("lr-min",), minimum=0)

    def __post_init__(self) -> None:
        if self.min_lr > self.lr:
            raise ValueError(f"--min-lr {self.min_lr}: must be at most --lr {self.lr}")
        if self.stop_lr > self.lr:
            raise ValueError(f"--stop-lr {self.stop_lr}: must be at most --lr {self.lr}")
        if 0 < self.stop_lr <= self.min_lr:
            raise ValueError(f"--stop-lr {self.stop_lr}: must be above --min-lr {self.min_lr}, or it is never reached")


@dataclass
class PlateauState:
    """The state of a plateau schedule."""

    best: float | None = None  # lowest validation loss so far, nats per token
    since: Count = 0  # number of validations since the best one or the last reduction
    falls: Count = 0  # number of reductions of the learning rate


@register("schedule", "plateau", PlateauOptions)
class Plateau(Schedule):
    """A constant rate that is reduced whenever the validation loss has not improved for several validations."""

    options: PlateauOptions
    depends_on = ("valid_every", "valid_set")

    def __init__(self, options: PlateauOptions, width: int, max_updates: int | None) -> None:
        super().__init__(options, width, max_updates)
        self.state = PlateauState()

    def __call__(self, update: int) -> float:
        return self._plateau_lr * warmup_factor(update, self.options.warmup_updates)

    @property
    def _plateau_lr(self) -> float:
        """The learning rate without warmup."""
        return max(self.options.min_lr, self.options.lr * self.options.plateau_factor**self.state.falls)

    @property
    def end(self) -> tuple[str, str] | None:
        """See Schedule."""
        if self._plateau_lr >= self.options.stop_lr:
            return None
        return "stop_lr", f"the learning rate is {self._plateau_lr:.3g}, below --stop-lr {self.options.stop_lr:g}"

    def see(self, loss: float) -> None:
        """See Schedule. NaN does not count as an improvement."""
        state = self.state
        if not math.isnan(loss) and (state.best is None or loss < state.best):
            state.best, state.since = loss, 0
        else:
            state.since += 1
        if state.since >= self.options.plateau_patience or (self.options.plateau_every and state.falls):
            state.falls, state.since = state.falls + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return asdict(self.state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See Schedule."""
        self.state = convert(state, PlateauState)
