"""What every schedule is: a pure function from the update to the learning rate."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from nmt.errors import UserError
from nmt.options import opt

LR_ALIASES: Final = ("learning-rate", "l")
WARMUP_ALIASES: Final = ("warmup", "lr-warmup")


class Schedule:
    """A registered schedule is built as `cls(options, width, max_updates)`.

    width: the model's D, which noam needs
    max_updates: the last update of the run, or None when the run is bounded otherwise
    depends_on: the trainer's settings that decide the learning rate; a run that goes on must keep them
    """

    depends_on: tuple[str, ...] = ()

    def __call__(self, update: int) -> float:
        """The learning rate of an update; the first update is 1."""
        raise NotImplementedError

    def see(self, loss: float) -> None:
        """A validation loss (nats a token); only a schedule with a memory, such as plateau, looks at it."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep; plain JSON values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what state_dict gave."""


def check_peak(lr: float, warmup_updates: int, least_warmup: int = 0) -> None:
    """Raises ValueError for a learning rate or a warm-up that no schedule can have."""
    if not 0 < lr < math.inf:
        raise ValueError(f"lr is {lr}; it must be above 0")
    if warmup_updates < least_warmup:
        raise ValueError(f"warmup_updates is {warmup_updates}; it must be at least {least_warmup}")


def check_final(fraction: float) -> None:
    """Raises ValueError for a part of the peak that cannot be left at the end."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"final_lr_fraction is {fraction}; it must be at least 0 and at most 1")


def warmed(update: int, warmup_updates: int) -> float:
    """The part of the peak that a linear warm-up from 0 has reached: 1 from update `warmup_updates` on."""
    return 1.0 if update >= warmup_updates else update / warmup_updates


def progress(update: int, warmup_updates: int, max_updates: int) -> float:
    """How far the update is on the way from the end of the warm-up (0) to the end of the run (1)."""
    return min(1.0, max(0.0, (update - warmup_updates) / (max_updates - warmup_updates)))


def last_update(schedule: str, warmup_updates: int, max_updates: int | None) -> int:
    """The end of a schedule that ends with the run; UserError when the run has none, or none after the warm-up."""
    if max_updates is None:
        raise UserError(
            f"schedule '{schedule}' needs to know where the run ends; give --max-updates, or another --schedule"
        )
    if max_updates <= warmup_updates:
        raise UserError(
            f"schedule '{schedule}' has {warmup_updates} warm-up updates but the run ends at update {max_updates}; "
            "give fewer --warmup-updates or more --max-updates"
        )
    return max_updates


@dataclass(frozen=True, kw_only=True)
class DecayOptions:
    """The options of a schedule that ends with the run."""

    lr: float = opt(5e-4, "the highest learning rate, at the end of the warm-up", aliases=LR_ALIASES)
    warmup_updates: int = opt(4000, "updates of linear growth from 0", aliases=WARMUP_ALIASES)
    final_lr_fraction: float = opt(0.0, "part of lr that is left at the last update of the run")

    def __post_init__(self) -> None:
        check_peak(self.lr, self.warmup_updates)
        check_final(self.final_lr_fraction)


class Decay(Schedule):
    """Linear growth to lr, then a way down to final_lr_fraction of it, reached at the last update of the run."""

    name: ClassVar[str]
    depends_on = ("max_updates",)

    def __init__(self, options: DecayOptions, width: int, max_updates: int | None) -> None:
        self.options = options
        self.max_updates = last_update(self.name, options.warmup_updates, max_updates)

    def left(self, done: float) -> float:
        """What is left of the way down, 1 to 0. done: how much of the time after the warm-up has passed, 0 to 1."""
        raise NotImplementedError

    def __call__(self, update: int) -> float:
        """See Schedule; after the last update the learning rate stays what it was there."""
        o = self.options
        if update < o.warmup_updates:
            return o.lr * warmed(update, o.warmup_updates)
        done = progress(update, o.warmup_updates, self.max_updates)
        return o.lr * (o.final_lr_fraction + (1 - o.final_lr_fraction) * self.left(done))
