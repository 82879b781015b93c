"""The learning rate of "Attention Is All You Need", equation 3 (section 5.3)."""

from dataclasses import dataclass

from nmt import opt, register
from nmt.schedules.base import LR_ALIASES, WARMUP_ALIASES, Schedule, check_peak


@dataclass(frozen=True, kw_only=True)
class NoamOptions:
    lr: float = opt(
        1.0, "factor of the paper's learning rate, which is 1; not a learning rate itself", aliases=LR_ALIASES
    )
    warmup_updates: int = opt(4000, "updates of linear growth; 4000 in the paper", aliases=WARMUP_ALIASES)

    def __post_init__(self) -> None:
        check_peak(self.lr, self.warmup_updates, least_warmup=1)


@register("schedule", "noam", NoamOptions)
class Noam(Schedule):
    """width^-0.5 * min(update^-0.5, update * warmup^-1.5): linear growth, then the inverse square root."""

    def __init__(self, options: NoamOptions, width: int, max_updates: int | None) -> None:
        self.options = options
        self.scale = options.lr * width**-0.5

    def __call__(self, update: int) -> float:
        """See Schedule."""
        return float(self.scale * min(update**-0.5, update * self.options.warmup_updates**-1.5))
