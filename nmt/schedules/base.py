"""What every schedule is: a pure function from the update to the learning rate."""

from typing import Any


class Schedule:
    """A registered schedule is built as `cls(options, width, max_updates)`.

    width: the model's D, which noam needs
    max_updates: the last update of the run, or None when the run is bounded otherwise
    """

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
