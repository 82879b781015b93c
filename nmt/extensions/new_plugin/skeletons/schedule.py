"""A schedule: a linear warm-up, then the learning rate is halved at regular intervals.

nmt train --plugin my_schedule.py --schedule my-schedule --data DATA --output RUN
nmt status RUN
"""

from nmt import opt, options_class, register
from nmt.schedules.base import Schedule


@options_class
class MyScheduleOptions:  # CHANGE: each option becomes a flag, such as --lr
    lr: float = opt(0.001, "maximum learning rate", above=0)
    warmup_updates: int = opt(100, "number of updates until the learning rate reaches its maximum", minimum=1)
    halve_every: int = opt(1000, "number of updates between two halvings of the learning rate", minimum=1)


@register("schedule", "my-schedule", MyScheduleOptions)
class MySchedule(Schedule):
    """A staircase: half the learning rate after every `halve_every` updates."""

    def __init__(self, options: MyScheduleOptions, width: int, max_updates: int | None) -> None:
        self.options = options  # width: the model's width; max_updates: the run's maximum, or None

    def __call__(self, update: int) -> float:
        """The learning rate of an update, counted from 1; the same update must always give the same value."""
        options: MyScheduleOptions = self.options
        if update <= options.warmup_updates:  # CHANGE: the curve
            return options.lr * update / options.warmup_updates
        return options.lr * 0.5 ** ((update - options.warmup_updates) // options.halve_every)
