"""One learning rate for the whole run, after a warm-up on request."""

from dataclasses import dataclass

from nmt import opt, register
from nmt.schedules.base import LR_ALIASES, WARMUP_ALIASES, Schedule, check_peak, warmed


@dataclass(frozen=True, kw_only=True)
class ConstantOptions:
    lr: float = opt(5e-4, "the learning rate", aliases=LR_ALIASES)
    warmup_updates: int = opt(0, "updates of linear growth from 0", aliases=WARMUP_ALIASES)

    def __post_init__(self) -> None:
        check_peak(self.lr, self.warmup_updates)


@register("schedule", "constant", ConstantOptions)
class Constant(Schedule):
    """The same learning rate at every update after the warm-up."""

    def __init__(self, options: ConstantOptions, width: int, max_updates: int | None) -> None:
        self.options = options

    def __call__(self, update: int) -> float:
        """See Schedule."""
        return self.options.lr * warmed(update, self.options.warmup_updates)
