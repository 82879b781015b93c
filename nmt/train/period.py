"""Periods as users write them: `500u` updates, `1e` epochs, `10m` minutes."""

import re
from typing import Final

UNITS: Final = {"u": "updates", "e": "epochs", "m": "minutes"}


def parse_period(text: str) -> tuple[float, str]:
    """(count, unit) of a period, the unit one of `UNITS`; a bare number means updates, and minutes may have a fraction.

    Raises ValueError for any other text.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([uem]?)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise ValueError(f"'{text}': not a period (give 500u for updates, 1e for epochs or 10m for minutes)")
    count, unit = float(match[1]), match[2] or "u"
    if unit != "m" and not count.is_integer():
        raise ValueError(f"'{text}': not a whole number of {UNITS[unit]}")
    return count, unit


class Timer:
    """Reports after each update whether a period has passed. Minutes count from the process's start or the last time due."""

    def __init__(self, period: str) -> None:
        self.count, self.unit = parse_period(period)
        self._last_due = 0.0

    def is_due(self, update: int, epoch_ended: int | None, seconds: float) -> bool:
        """Whether the period has passed.

        epoch_ended: number of the epoch that ended with the update, if any
        seconds: since the start of the process
        """
        if self.unit != "m":
            done = update if self.unit == "u" else epoch_ended
            return done is not None and done % int(self.count) == 0
        if seconds - self._last_due < 60 * self.count:
            return False
        self._last_due = seconds
        return True

    def seconds_left(self, update: int, epochs: float, seconds: float, per_update: float, per_epoch: float) -> float:
        """Estimated seconds until the timer is due.

        epochs: read so far; per_update, per_epoch: seconds of an update and of an epoch
        """
        if self.unit == "m":
            return max(0.0, 60 * self.count - (seconds - self._last_due))
        done, each = (update, per_update) if self.unit == "u" else (epochs, per_epoch)
        return (self.count - done % self.count) * each
