"""A constant learning rate, optionally after a warm-up or halved at regular intervals."""

from nmt import opt, options_class, register
from nmt.schedules.base import Schedule, lr_opt, warmup_factor, warmup_opt


@options_class
class ConstantOptions:
    lr: float = lr_opt(5e-4, "learning rate")
    warmup_updates: int = warmup_opt(0, "updates of linear warm-up from 0", minimum=0)
    halve_from: int | None = opt(
        None, "update at which the learning rate is first halved; if unset, never", group="Learning rate", minimum=1
    )
    halve_every: int = opt(
        200_000, "number of updates between halvings of the learning rate", group="Learning rate", minimum=1
    )


@register("schedule", "constant", ConstantOptions)
class Constant(Schedule):
    """The same learning rate at every update after the warm-up, optionally halved at regular intervals."""

    options: ConstantOptions

    def __call__(self, update: int) -> float:
        o = self.options
        halvings = 0 if o.halve_from is None or update < o.halve_from else 1 + (update - o.halve_from) // o.halve_every
        return float(o.lr * warmup_factor(update, o.warmup_updates) * 0.5**halvings)
