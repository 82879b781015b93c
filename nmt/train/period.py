"""Periods as users write them: `500u` updates, `1e` epochs, `10m` minutes."""

import re
from dataclasses import dataclass
from typing import Final

UNITS: Final = {"u": "updates", "e": "epochs", "m": "minutes"}


@dataclass(frozen=True)
class Period:
    """count: at least 1; unit: u, e or m. Minutes may be broken: `0.5m`."""

    count: float
    unit: str

    @classmethod
    def parse(cls, text: str) -> "Period":
        """Raises ValueError when text is not such a period. A bare number means updates."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([uem]?)", text.strip())
        if match is None or float(match[1]) <= 0:
            raise ValueError(f"'{text}' is not a period; write 500u (updates), 1e (epochs) or 10m (minutes)")
        unit = match[2] or "u"
        if unit != "m" and not float(match[1]).is_integer():
            raise ValueError(f"'{text}' is not a whole number of {UNITS[unit]}")
        return cls(float(match[1]), unit)


class Timer:
    """Tells, after each update, whether a period has passed. Minutes count from the start of the process or the last ring."""

    def __init__(self, period: Period) -> None:
        self.period = period
        self._since = 0.0

    def is_due(self, update: int, epoch_ended: int | None, seconds: float) -> bool:
        """update: its number; epoch_ended: the number of the epoch that ended with it, if one did; seconds: of the process."""
        if self.period.unit == "u":
            return update % int(self.period.count) == 0
        if self.period.unit == "e":
            return epoch_ended is not None and epoch_ended % int(self.period.count) == 0
        if seconds - self._since < 60 * self.period.count:
            return False
        self._since = seconds
        return True

    def seconds_left(self, update: int, epochs: float, seconds: float, per_update: float, per_epoch: float) -> float:
        """About how long until it rings. epochs: read so far; per_update, per_epoch: seconds that one takes."""
        if self.period.unit == "m":
            return max(0.0, 60 * self.period.count - (seconds - self._since))
        done, each = (update, per_update) if self.period.unit == "u" else (epochs, per_epoch)
        return (self.period.count - done % self.period.count) * each
