"""One learning rate for the whole run, optionally after a warm-up."""

from nmt import opt, options_class, register
from nmt.schedules.base import LR_ALIASES, WARMUP_ALIASES, Schedule, warmup_factor


@options_class
class ConstantOptions:
    lr: float = opt(5e-4, "the learning rate", aliases=LR_ALIASES, above=0)
    warmup_updates: int = opt(0, "updates of linear growth from 0", aliases=WARMUP_ALIASES, minimum=0)


@register("schedule", "constant", ConstantOptions)
class Constant(Schedule):
    """The same learning rate at every update after the warm-up."""

    options: ConstantOptions

    def __call__(self, update: int) -> float:
        return self.options.lr * warmup_factor(update, self.options.warmup_updates)
