"""The learning rate of "Attention Is All You Need", equation 3 (section 5.3)."""

from typing import Final

from nmt import opt, options_class, register
from nmt.schedules.base import LR_ALIASES, WARMUP_ALIASES, Schedule

MIN_FACTOR: Final = 0.01  # less is a learning rate that was meant for another schedule


@options_class
class NoamOptions:
    lr: float = opt(
        1.0, "factor of the paper's learning rate, which is 1; not a learning rate itself", aliases=LR_ALIASES, above=0
    )
    warmup_updates: int = opt(4000, "updates of linear growth; 4000 in the paper", aliases=WARMUP_ALIASES, minimum=1)

    def __post_init__(self) -> None:
        if self.lr < MIN_FACTOR:
            raise ValueError(
                f"--lr {self.lr}: must be at least {MIN_FACTOR}, since it is a factor of the paper's learning rate "
                "(--schedule inverse-sqrt takes a learning rate)"
            )


@register("schedule", "noam", NoamOptions)
class Noam(Schedule):
    """width^-0.5 * min(update^-0.5, update * warmup^-1.5): linear growth, then the inverse square root."""

    def __init__(self, options: NoamOptions, width: int, max_updates: int | None) -> None:
        super().__init__(options, width, max_updates)
        self.scale = options.lr * width**-0.5

    def __call__(self, update: int) -> float:
        return float(self.scale * min(update**-0.5, update * self.options.warmup_updates**-1.5))
