"""Signals as flags: a handler records the signal, and the work checks for it where it can stop safely."""

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, Self

from nmt.errors import Interrupted

StopCheck = Callable[[], None]
"""Called by long work now and then; may raise to stop it, as `Signals.check` does."""

DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG of linux/prctl.h
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)


def end_with_parent(number: int) -> None:
    """Have this process get a signal when its parent ends, however that ends. On Linux alone."""
    if sys.platform == "linux":
        import ctypes  # slow, and only needed in children

        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, number)


class Signals:
    """A context in which TERM, USR1, HUP and the first INT are only recorded. A second INT interrupts at once.

    received: number of the first signal, or None
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._num_interrupts = 0
        self._previous: dict[signal.Signals, Any] = {}  # handlers

    def __enter__(self) -> Self:
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays in force
                self._previous[number] = signal.signal(number, self._record)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _record(self, number: int, _frame: FrameType | None) -> None:
        self._num_interrupts += number == signal.SIGINT
        if self._num_interrupts > 1:
            raise KeyboardInterrupt
        self.received = self.received or number

    def check(self) -> None:
        """Raise Interrupted if a signal was received."""
        if self.received is not None:
            raise Interrupted(self.received)
