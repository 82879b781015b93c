"""Linear warm-up, then a straight line down to the last update of the run."""

from dataclasses import dataclass

from nmt import opt, register
from nmt.schedules.base import (
    LR_ALIASES,
    WARMUP_ALIASES,
    Schedule,
    check_final,
    check_peak,
    last_update,
    progress,
    warmed,
)


@dataclass(frozen=True, kw_only=True)
class LinearOptions:
    lr: float = opt(5e-4, "the highest learning rate, at the end of the warm-up", aliases=LR_ALIASES)
    warmup_updates: int = opt(4000, "updates of linear growth from 0", aliases=WARMUP_ALIASES)
    final_lr_fraction: float = opt(0.0, "part of lr that is left at the last update of the run")

    def __post_init__(self) -> None:
        check_peak(self.lr, self.warmup_updates)
        check_final(self.final_lr_fraction)


@register("schedule", "linear", LinearOptions)
class Linear(Schedule):
    """Linear growth to lr, then linear decay over the rest of the run."""

    depends_on = ("max_updates",)

    def __init__(self, options: LinearOptions, width: int, max_updates: int | None) -> None:
        self.options = options
        self.max_updates = last_update("linear", options.warmup_updates, max_updates)

    def __call__(self, update: int) -> float:
        """See Schedule; after the last update the learning rate stays what it was there."""
        o = self.options
        if update < o.warmup_updates:
            return o.lr * warmed(update, o.warmup_updates)
        done = progress(update, o.warmup_updates, self.max_updates)
        return o.lr * (o.final_lr_fraction + (1 - o.final_lr_fraction) * (1 - done))
