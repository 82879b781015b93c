"""Linear warm-up, then a linear or cosine decay that ends at the last update of the run."""

import math
from typing import ClassVar

from nmt import UserError, opt, options_class, register
from nmt.schedules.base import Schedule, lr_opt, warmup_factor, warmup_opt


@options_class
class DecayOptions:
    lr: float = lr_opt(5e-4, "peak learning rate, after the warm-up")
    warmup_updates: int = warmup_opt(4000, "updates of linear warm-up from 0", minimum=0)
    final_lr_fraction: float = opt(
        0.0, "fraction of --lr that remains at the last update", group="Learning rate", minimum=0, maximum=1
    )


class Decay(Schedule):
    """Linear warm-up to lr, then a decay to lr * final_lr_fraction at the last update of the run.

    Raises UserError if the run has no last update, or if the last update lies within the warm-up.
    """

    part_name: ClassVar[str]  # the registered name
    options: DecayOptions
    depends_on = ("max_updates",)

    def __init__(self, options: DecayOptions, width: int, max_updates: int | None) -> None:
        if max_updates is None:
            raise UserError(f"--schedule {self.part_name} needs --max-updates, because it decays until the last update")
        if max_updates <= options.warmup_updates:
            raise UserError(
                f"--schedule {self.part_name}: the warm-up takes {options.warmup_updates} updates, but the run ends after "
                f"{max_updates} (lower --warmup-updates or raise --max-updates)"
            )
        super().__init__(options, width, max_updates)
        self.max_updates = max_updates

    def remaining(self, done: float) -> float:
        """The fraction of the decay that remains, from 1 to 0. done: fraction of the updates after the warm-up, from 0 to 1"""
        raise NotImplementedError

    def __call__(self, update: int) -> float:
        """See Schedule. After the last update the learning rate stays constant."""
        o = self.options
        if update < o.warmup_updates:
            return o.lr * warmup_factor(update, o.warmup_updates)
        done = min(1.0, (update - o.warmup_updates) / (self.max_updates - o.warmup_updates))
        return o.lr * (o.final_lr_fraction + (1 - o.final_lr_fraction) * self.remaining(done))


@register("schedule", "linear", DecayOptions)
class LinearDecay(Decay):
    """Linear warm-up to lr, then linear decay over the rest of the run."""

    def remaining(self, done: float) -> float:
        return 1 - done


@register("schedule", "cosine", DecayOptions)
class CosineDecay(Decay):
    """Linear warm-up to lr, then cosine decay over the rest of the run."""

    def remaining(self, done: float) -> float:
        """See Decay; half a period of a cosine (Loshchilov and Hutter, 2017)."""
        return (1 + math.cos(math.pi * done)) / 2
