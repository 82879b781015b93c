"""Linear warm-up, then a decay down to the last update of the run: straight, or half a cosine."""

import math
from typing import ClassVar

from nmt import UserError, opt, options_class, register
from nmt.schedules.base import LR_ALIASES, WARMUP_ALIASES, Schedule, warmup_factor


@options_class
class DecayOptions:
    lr: float = opt(5e-4, "the highest learning rate, at the end of the warm-up", aliases=LR_ALIASES, above=0)
    warmup_updates: int = opt(4000, "updates of linear growth from 0", aliases=WARMUP_ALIASES, minimum=0)
    final_lr_fraction: float = opt(0.0, "share of lr that is left at the last update of the run", minimum=0, maximum=1)


class Decay(Schedule):
    """Linear growth to lr, then a decay to final_lr_fraction of it at the last update of the run.

    Raises UserError if the run has no last update, or one within the warm-up.
    """

    part_name: ClassVar[str]  # as registered
    options: DecayOptions
    depends_on = ("max_updates",)

    def __init__(self, options: DecayOptions, width: int, max_updates: int | None) -> None:
        if max_updates is None:
            raise UserError(f"--schedule {self.part_name}: needs the last update of the run (give --max-updates)")
        if max_updates <= options.warmup_updates:
            raise UserError(
                f"--schedule {self.part_name}: has {options.warmup_updates} warm-up updates, but the run ends at update "
                f"{max_updates} (give fewer --warmup-updates or more --max-updates)"
            )
        super().__init__(options, width, max_updates)
        self.max_updates = max_updates

    def remaining(self, done: float) -> float:
        """The share of the decay that remains, 1 to 0. done: share of the updates after the warm-up, 0 to 1"""
        raise NotImplementedError

    def __call__(self, update: int) -> float:
        """See Schedule; after the last update the learning rate stays the same."""
        o = self.options
        if update < o.warmup_updates:
            return o.lr * warmup_factor(update, o.warmup_updates)
        done = min(1.0, (update - o.warmup_updates) / (self.max_updates - o.warmup_updates))
        return o.lr * (o.final_lr_fraction + (1 - o.final_lr_fraction) * self.remaining(done))


@register("schedule", "linear", DecayOptions)
class LinearDecay(Decay):
    """Linear growth to lr, then linear decay over the rest of the run."""

    def remaining(self, done: float) -> float:
        return 1 - done


@register("schedule", "cosine", DecayOptions)
class CosineDecay(Decay):
    """Linear growth to lr, then half a cosine over the rest of the run."""

    def remaining(self, done: float) -> float:
        """Loshchilov and Hutter, 2017."""
        return (1 + math.cos(math.pi * done)) / 2
