"""Learning-rate schedules: pure functions from the update to the learning rate."""

from typing import Any, ClassVar, Final

from nmt.errors import UserError
from nmt.options import opt, options_class

LR_ALIASES: Final = ("learning-rate", "l")
WARMUP_ALIASES: Final = ("warmup", "lr-warmup")


class Schedule:
    """A learning-rate schedule. A registered schedule is built as `cls(options, width, max_updates)`.

    width: the model's D, which noam needs
    max_updates: the last update of the run, or None when the run is bounded otherwise
    depends_on: the trainer's settings that decide the learning rate; a continued run must keep them
    """

    depends_on: tuple[str, ...] = ()

    def __init__(self, options: Any, width: int, max_updates: int | None) -> None:
        self.options = options

    def __call__(self, update: int) -> float:
        """The learning rate of an update, counted from 1."""
        raise NotImplementedError

    def see(self, loss: float) -> None:
        """Take in a validation loss, in nats a token; only schedules with a state, such as plateau, use it."""

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps; plain JSON values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that state_dict returned."""


def warmup_factor(update: int, warmup_updates: int) -> float:
    """The share of the peak that a linear warm-up from 0 has reached: 1 from update `warmup_updates` on."""
    return 1.0 if update >= warmup_updates else update / warmup_updates


@options_class
class DecayOptions:
    """The options of a schedule that ends with the run."""

    lr: float = opt(5e-4, "the highest learning rate, at the end of the warm-up", aliases=LR_ALIASES, above=0)
    warmup_updates: int = opt(4000, "updates of linear growth from 0", aliases=WARMUP_ALIASES, minimum=0)
    final_lr_fraction: float = opt(0.0, "share of lr that is left at the last update of the run", minimum=0, maximum=1)


class Decay(Schedule):
    """Linear growth to lr, then a decay to final_lr_fraction of it at the last update of the run.

    Raises UserError if the run has no last update, or one within the warm-up.
    """

    name: ClassVar[str]
    options: DecayOptions
    depends_on = ("max_updates",)

    def __init__(self, options: DecayOptions, width: int, max_updates: int | None) -> None:
        if max_updates is None:
            raise UserError(f"--schedule {self.name}: needs the last update of the run (give --max-updates)")
        if max_updates <= options.warmup_updates:
            raise UserError(
                f"--schedule {self.name}: has {options.warmup_updates} warm-up updates, but the run ends at update "
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
        done = min(1.0, max(0.0, (update - o.warmup_updates) / (self.max_updates - o.warmup_updates)))
        return o.lr * (o.final_lr_fraction + (1 - o.final_lr_fraction) * self.remaining(done))
