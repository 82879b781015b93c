"""Periods as users write them, and timers that report when a period has passed.

A period is a number of updates (`500u`), epochs (`1e`) or minutes (`10m`). `500u,10m` means whichever comes first.
"""

import re
from typing import Final

CLOCK_SHARE: Final = 0.05  # maximum fraction of the time spent on validations that are due only by the clock
UNITS: Final = {"u": "updates", "e": "epochs", "m": "minutes"}


def parse_period(text: str) -> tuple[float, str]:
    """Parse a period into (count, unit), with a unit of `UNITS`. A bare number means updates; minutes may have a fraction.

    Raises ValueError for any other text.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([uem]?)", text.strip(), re.ASCII)
    if match is None or not 0 < float(match[1]) < 2**63:  # a longer period could overflow when converted to seconds
        raise ValueError(
            f"'{text}': not a period (write 500u for updates, 1e for epochs or 10m for minutes; "
            "a period longer than the run means once, at the run's end)"
        )
    count, unit = float(match[1]), match[2] or "u"
    if unit != "m" and not count.is_integer():
        raise ValueError(f"'{text}': not a whole number of {UNITS[unit]}")
    return count, unit


def parse_periods(text: str) -> list[tuple[float, str]]:
    """Parse the periods of a text such as `500u,10m`, in their order. See `parse_period`.

    Raises ValueError for any other text, and for two periods with the same unit.
    """
    periods = [parse_period(part) for part in text.split(",")]
    units = [unit for _, unit in periods]
    if len(units) > len({*units}):
        raise ValueError(f"'{text}': two periods have the same unit (use each unit once, as in 500u,10m)")
    return periods


def without_minutes(text: str) -> str:
    """Drop the minutes from a period that also has updates or epochs. The other units decide which validations count."""
    parts = [part.strip() for part in text.split(",")]
    return ",".join([part for part in parts if not part.endswith("m")] or parts)


class Timer:
    """Reports after each update whether a period has passed. Minutes count from the process's start or the last `restart`.

    text: one or several periods; the timer is due when the first of them has passed
    """

    def __init__(self, text: str) -> None:
        counts = {unit: count for count, unit in parse_periods(text)}
        self._minutes = counts.pop("m", None)
        self._counts = {unit: int(count) for unit, count in counts.items()}
        self._began = self._rest = 0.0

    def is_due(self, update: int, epoch_ended: int | None, seconds: float) -> bool:
        """Whether a period has passed.

        epoch_ended: number of the epoch that ended with this update, or None
        seconds: time since the start of the process
        """
        by_clock = self._minutes is not None and seconds - self._began >= self._pause(self._minutes)
        return by_clock or self._is_due_by_count(update, epoch_ended)

    def is_regular(self, update: int, epoch_ended: int | None) -> bool:
        """Whether a due timer has only minutes, or is due because of updates or epochs, not only because of the clock."""
        return not self._counts or self._is_due_by_count(update, epoch_ended)

    def restart(self, seconds: float, took: float = 0.0) -> None:
        """Start a new period of minutes, after the work that was due.

        seconds: time since the start of the process
        took: seconds that the work took. If the timer also has updates or epochs, it waits long enough that such work
            takes at most CLOCK_SHARE of the time
        """
        self._began, self._rest = seconds, took / CLOCK_SHARE - took if self._counts else 0.0

    def seconds_left(self, update: int, epochs: float, seconds: float, per_update: float, per_epoch: float) -> float:
        """Estimated seconds until the timer is due.

        epochs: epochs read so far; per_update, per_epoch: seconds per update and per epoch
        """
        done, each = {"u": float(update), "e": epochs}, {"u": per_update, "e": per_epoch}
        left = [(count - done[unit] % count) * each[unit] for unit, count in self._counts.items()]
        if self._minutes is not None:  # an update in progress delays the timer
            left.append(max(0.0, per_update, self._pause(self._minutes) - (seconds - self._began)))
        return min(left)

    def _is_due_by_count(self, update: int, epoch_ended: int | None) -> bool:
        done = {"u": update, "e": epoch_ended}
        return any((number := done[unit]) is not None and number % count == 0 for unit, count in self._counts.items())

    def _pause(self, minutes: float) -> float:
        """Seconds to wait after a restart: this many minutes, or longer after slow work."""
        return max(60 * minutes, self._rest)
