"""A learning rate that falls whenever the validation loss stops falling: the one schedule with a memory."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from nmt import opt, options_class, register
from nmt.errors import ArtefactError, quoted
from nmt.options import convert
from nmt.schedules.base import LR_ALIASES, WARMUP_ALIASES, Schedule, check_peak, warmed


@options_class
class PlateauOptions:
    lr: float = opt(5e-4, "the learning rate before it first falls", aliases=LR_ALIASES)
    warmup_updates: int = opt(0, "updates of linear growth from 0", aliases=WARMUP_ALIASES)
    plateau_factor: float = opt(0.5, "factor of each cut of the learning rate", above=0, below=1)
    plateau_patience: int = opt(3, "validations in a row without a new best loss that lead to a cut", minimum=1)
    min_lr: float = opt(0.0, "the learning rate falls no lower than this", aliases=("lr-min",))

    def __post_init__(self) -> None:
        check_peak(self.lr, self.warmup_updates)
        if not 0 <= self.min_lr <= self.lr:
            raise ValueError(f"min_lr is {self.min_lr}; it must be at least 0 and at most lr, {self.lr}")


@dataclass
class Memory:
    """What a plateau remembers.

    best: lowest validation loss so far, nats a token
    since: validations after the best one or after the last fall
    falls: times that the learning rate fell
    """

    best: float | None = None
    since: int = 0
    falls: int = 0


@register("schedule", "plateau", PlateauOptions)
class Plateau(Schedule):
    """A constant that is cut each time the validation loss has not improved for some validations."""

    depends_on = ("valid_every", "valid_set")

    def __init__(self, options: PlateauOptions, width: int, max_updates: int | None) -> None:
        self.options = options
        self.memory = Memory()

    def __call__(self, update: int) -> float:
        """See Schedule."""
        o = self.options
        return max(o.min_lr, o.lr * o.plateau_factor**self.memory.falls) * warmed(update, o.warmup_updates)

    def see(self, loss: float) -> None:
        """See Schedule; a loss that is not a number is no improvement."""
        memory = self.memory
        if not math.isnan(loss) and (memory.best is None or loss < memory.best):
            memory.best, memory.since = loss, 0
        else:
            memory.since += 1
        if memory.since >= self.options.plateau_patience:
            memory.falls, memory.since = memory.falls + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """See Schedule."""
        return asdict(self.memory)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See Schedule; ArtefactError when it is not what state_dict gives."""
        try:
            self.memory = convert(state, Memory)
        except ValueError as error:
            raise ArtefactError(f"state of schedule 'plateau' is not one: {quoted(error)}") from None
