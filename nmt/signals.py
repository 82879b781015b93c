"""Signals as flags: a handler only takes note, and the work looks at the note where it can stop safely."""

import signal
from types import FrameType
from typing import Any, Final, Self

from nmt.errors import Interrupted

ASKED_TO_STOP: Final = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)


class Signals:
    """While entered, TERM, USR1, HUP and the first INT are noted in `received`; a second INT interrupts at once."""

    def __init__(self) -> None:
        self.received: int | None = None  # the first of them
        self._interrupts = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in ASKED_TO_STOP:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays in force
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            raise KeyboardInterrupt
        self.received = self.received or number

    def check(self) -> None:
        """Raises Interrupted when a signal asked to stop."""
        if self.received is not None:
            raise Interrupted(self.received)
