"""The interface of learning-rate schedules, functions that map the update number to the learning rate."""

from typing import Any

from nmt import opt


def lr_opt(default: float, help: str) -> Any:
    """Declare the option `lr` in a schedule's options class."""
    return opt(default, help, group="Learning rate", common=True, aliases=("learning-rate", "l"), above=0)


def warmup_opt(default: int, help: str, minimum: int) -> Any:
    """Declare the option `warmup_updates` in a schedule's options class."""
    return opt(default, help, group="Learning rate", common=True, aliases=("warmup", "lr-warmup"), minimum=minimum)


class Schedule:
    """A learning-rate schedule. A registered schedule is built as `cls(options, width, max_updates)`.

    width: the model's width, which noam needs
    max_updates: the last update of the run, or None if something else ends the run
    depends_on: names of training options that determine the learning rate; a resumed run must keep them
    """

    depends_on: tuple[str, ...] = ()

    def __init__(self, options: Any, width: int, max_updates: int | None) -> None:
        self.options = options

    def __call__(self, update: int) -> float:
        """The learning rate for an update. Updates count from 1."""
        raise NotImplementedError

    @property
    def end(self) -> tuple[str, str] | None:
        """The option that makes the schedule end the run, and a sentence that says why; None while the run should continue."""
        return None

    def see(self, loss: float) -> None:
        """Read a validation loss, in nats per token. Only schedules with a state, such as plateau, use it."""

    def state_dict(self) -> dict[str, Any]:
        """The state to save in a checkpoint, as plain JSON values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that state_dict returned. Raises ValueError if the state does not fit this schedule."""


def warmup_factor(update: int, warmup_updates: int) -> float:
    """The fraction of the peak that a linear warm-up from 0 has reached: 1 once `warmup_updates` is reached."""
    return 1.0 if update >= warmup_updates else update / warmup_updates


def rises_at(schedule: Schedule, update: int) -> bool:
    """Whether the learning rate is still rising at an update, as it does during a warm-up."""
    return update > 1 and schedule(update) > schedule(update - 1)
