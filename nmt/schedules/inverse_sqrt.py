"""Linear warm-up to a peak, optionally a flat stretch, then inverse square root decay, like fairseq's `inverse_sqrt`."""

from nmt import opt, options_class, register
from nmt.schedules.base import Schedule, lr_opt, warmup_factor, warmup_opt


@options_class
class InverseSqrtOptions:
    lr: float = lr_opt(5e-4, "peak learning rate, after the warm-up")
    warmup_updates: int = warmup_opt(4000, "updates of linear warm-up", minimum=1)
    warmup_init_lr: float = opt(0.0, "learning rate at the start of the warm-up", group="Learning rate", minimum=0)
    flat_updates: int = opt(
        0, "number of updates at the peak learning rate, between warm-up and decay", group="Learning rate", minimum=0
    )

    def __post_init__(self) -> None:
        if self.warmup_init_lr > self.lr:
            raise ValueError(f"--warmup-init-lr {self.warmup_init_lr}: must be at most --lr ({self.lr})")


@register("schedule", "inverse-sqrt", InverseSqrtOptions)
class InverseSqrt(Schedule):
    """Linear warm-up from warmup_init_lr to lr, then lr for flat_updates, then lr * sqrt((warmup + flat) / update)."""

    options: InverseSqrtOptions

    def __call__(self, update: int) -> float:
        o = self.options
        if update < o.warmup_updates:
            return o.warmup_init_lr + (o.lr - o.warmup_init_lr) * warmup_factor(update, o.warmup_updates)
        return float(o.lr * min(1.0, (o.warmup_updates + o.flat_updates) / update) ** 0.5)
