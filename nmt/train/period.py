"""Periods as users write them: `500u` updates, `1e` epochs, `10m` minutes."""

import re
from dataclasses import dataclass
from typing import Final

UNITS: Final = {"u": "updates", "e": "epochs", "m": "minutes"}


@dataclass(frozen=True)
class Period:
    """count: at least 1, or a fraction of minutes: `0.5m`; unit: u, e or m"""

    count: float
    unit: str

    @classmethod
    def parse(cls, text: str) -> "Period":
        """Raises ValueError for any other text. A bare number means updates."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([uem]?)", text.strip())
        if match is None or float(match[1]) <= 0:
            raise ValueError(f"'{text}': not a period (give 500u for updates, 1e for epochs or 10m for minutes)")
        unit = match[2] or "u"
        if unit != "m" and not float(match[1]).is_integer():
            raise ValueError(f"'{text}': not a whole number of {UNITS[unit]}")
        return cls(float(match[1]), unit)


class Timer:
    """Reports after each update whether a period has passed. Minutes count from the process's start or the last time due."""

    def __init__(self, period: Period) -> None:
        self.period = period
        self._last_due = 0.0

    @classmethod
    def of(cls, text: str) -> "Timer":
        """The timer of a period as users write it."""
        return cls(Period.parse(text))

    def is_due(self, update: int, epoch_ended: int | None, seconds: float) -> bool:
        """Whether the period has passed.

        update: number of the update; epoch_ended: number of the epoch that ended with it, if any
        seconds: since the start of the process
        """
        if self.period.unit == "u":
            return update % int(self.period.count) == 0
        if self.period.unit == "e":
            return epoch_ended is not None and epoch_ended % int(self.period.count) == 0
        if seconds - self._last_due < 60 * self.period.count:
            return False
        self._last_due = seconds
        return True

    def seconds_left(self, update: int, epochs: float, seconds: float, per_update: float, per_epoch: float) -> float:
        """Estimated seconds until the timer is due.

        epochs: read so far; per_update, per_epoch: seconds of an update and of an epoch
        """
        if self.period.unit == "m":
            return max(0.0, 60 * self.period.count - (seconds - self._last_due))
        done, each = (update, per_update) if self.period.unit == "u" else (epochs, per_epoch)
        return (self.period.count - done % self.period.count) * each
