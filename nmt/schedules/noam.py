"""The learning rate of "Attention Is All You Need", equation 3 (section 5.3)."""

from typing import Final

from nmt import options_class, register
from nmt.schedules.base import Schedule, lr_opt, warmup_opt

MIN_FACTOR: Final = 0.01  # a smaller value is probably a learning rate, meant for another schedule


@options_class
class NoamOptions:
    lr: float = lr_opt(1.0, "factor on the paper's learning rate")
    warmup_updates: int = warmup_opt(4000, "updates of linear warm-up", minimum=1)

    def __post_init__(self) -> None:
        if self.lr < MIN_FACTOR:
            raise ValueError(
                f"--lr {self.lr}: must be at least {MIN_FACTOR}, because --schedule noam multiplies the paper's learning rate "
                "by it (to set a learning rate, use --schedule inverse-sqrt)"
            )


@register("schedule", "noam", NoamOptions)
class Noam(Schedule):
    """lr * width^-0.5 * min(update^-0.5, update * warmup^-1.5): linear warm-up, then inverse square root decay."""

    def __init__(self, options: NoamOptions, width: int, max_updates: int | None) -> None:
        super().__init__(options, width, max_updates)
        self.scale = options.lr * width**-0.5

    def __call__(self, update: int) -> float:
        return float(self.scale * min(update**-0.5, update * self.options.warmup_updates**-1.5))
