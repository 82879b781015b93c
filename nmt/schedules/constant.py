"""A constant learning rate, optionally after a warm-up or halved at regular intervals."""

from nmt import opt, options_class, register
from nmt.schedules.base import LR_ALIASES, WARMUP_ALIASES, Schedule, warmup_factor


@options_class
class ConstantOptions:
    lr: float = opt(
        5e-4,
        "learning rate",
        group="Learning rate",
        common=True,
        aliases=LR_ALIASES,
        above=0,
    )
    warmup_updates: int = opt(
        0,
        "updates of linear warm-up from 0",
        group="Learning rate",
        common=True,
        aliases=WARMUP_ALIASES,
        minimum=0,
    )
    halve_from: int | None = opt(
        None, "first update at half the learning rate; if unset, it stays constant", group="Learning rate", minimum=1
    )
    halve_every: int = opt(
        200_000, "updates between two halvings of the learning rate", group="Learning rate", minimum=1
    )


@register("schedule", "constant", ConstantOptions)
class Constant(Schedule):
    """The same learning rate at every update after the warm-up, optionally halved at regular intervals."""

    options: ConstantOptions

    def __call__(self, update: int) -> float:
        o = self.options
        halvings = 0 if o.halve_from is None or update < o.halve_from else 1 + (update - o.halve_from) // o.halve_every
        return float(o.lr * warmup_factor(update, o.warmup_updates) * 0.5**halvings)
