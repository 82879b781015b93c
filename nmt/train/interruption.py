"""After a signal: an update is given up, on all ranks alike, where its rest would take too long."""

import time
from typing import Final

from nmt.dist import World
from nmt.signals import Signals

FINISH_SECONDS: Final = 10.0  # from the signal to the end of the update; of 20, the rest is for the checkpoint
ASK_SECONDS: Final = 1.0  # between two questions whether another rank received a signal
STOP_KEY: Final = "stop"  # key of a signal in the ranks' store


class UpdateGivenUp(Exception):
    """An update was not finished because of a signal; the weights are those before it."""


class SignalWatch:
    """Looks for a signal between the micro-batches of an update, and estimates when the update would end.

    Ranks decide together before each pass in which they wait for one another; until then each decides alone to skip its
    passes, and the vote of one ends the update of all.
    """

    def __init__(self, world: World, signals: Signals) -> None:
        self.world, self.signals = world, signals
        self._seconds_per_token = 0.0  # of the last update, padding counted; 0 before the first
        self._signal_at: float | None = None  # received by any rank
        self._began = self._asked = time.monotonic()
        self._must_finish = False

    def begin(self) -> None:
        """Begin an update, and measure its passes from now on."""
        self._began, self._must_finish = time.monotonic(), False

    def check(self, done: int, left: int, together: bool, last: bool) -> None:
        """Raise UpdateGivenUp if a signal came and the update would not end within FINISH_SECONDS of it.

        done, left: tokens of the passes before and after this call, padding counted
        together: whether ranks wait for one another in the next pass; last: whether it is the update's last
        """
        if self._must_finish:
            return
        too_long = self._ends_too_late(done, left)
        if self.world.size > 1 and (together or too_long):
            too_long = self.world.any(too_long)
            self._must_finish = last  # and not asked again, where memory runs out in that pass
        if too_long:
            raise UpdateGivenUp

    def end(self, tokens: int) -> None:
        """End an update of so many tokens, padding counted."""
        self._seconds_per_token = (time.monotonic() - self._began) / max(tokens, 1)

    def _ends_too_late(self, done: int, left: int) -> bool:
        now = time.monotonic()
        if self._signal_at is None and self._received(now):
            self._signal_at = now
        if self._signal_at is None:
            return False
        rate = max(self._seconds_per_token, (now - self._began) / done if done else 0.0)
        return now + left * rate > self._signal_at + FINISH_SECONDS

    def _received(self, now: float) -> bool:
        """Whether this rank received a signal, which it tells the others, or another one did."""
        if self.signals.received is not None:
            if self.world.size > 1:
                self.world.post(STOP_KEY, b"")
            return True
        if self.world.size == 1 or now < self._asked + ASK_SECONDS:
            return False
        self._asked = now
        return self.world.posted(STOP_KEY)
