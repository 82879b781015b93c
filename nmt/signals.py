"""Signals as flags: a handler records the signal, and the work checks for it where it can stop safely.

Work calls `check()` now and then. Within `with Signals():` that raises Interrupted after a signal; elsewhere, as in a thread of
its own or in a notebook, nothing stops it.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from threading import Lock, Thread, current_thread, main_thread
from types import FrameType
from typing import Any, Final, Self

from nmt.errors import Interrupted

WORKING_ON: Final[list[Callable[[], bool]]] = []
"""Asked at the end of the program: whether threads that Python does not know still work, and would hold it up."""

DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG of linux/prctl.h
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)
END_SECONDS: Final = 9.0  # from a signal to the end of a process that does not look for it
POLL_SECONDS: Final = 0.1


def signal_at_end_of_parent(number: int) -> None:
    """Have this process get a signal when its parent ends, however that ends. On Linux alone.

    SIGCONT lets one that is stopped go on, so that it can end by itself.
    """
    if sys.platform == "linux":
        import ctypes  # slow, and only needed in children

        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, number)


class Signals:
    """A context in which TERM, USR1, HUP and the first INT are only recorded. A second INT interrupts at once.

    Where the work has not looked for a signal some time after it came, a thread ends the process: within a long call, or
    a plug-in that blocks. Files and folders are complete or have their temporary names then.

    seconds: that time; None is no such thread
    also: called by each check; may raise for another reason to stop
    held: locked by a block whose end the process waits for: a checkpoint is being written
    """

    def __init__(self, seconds: float | None = END_SECONDS, also: Callable[[], None] = lambda: None) -> None:
        self._received: int | None = None
        self._seconds, self._is_seen = seconds, False  # the latter: whether the work has looked since
        self._also, self._num_interrupts = also, 0
        self._previous: dict[int, Any] = {}  # handlers
        self._previous_wakeup = -1
        self._pipe: tuple[int, int] | None = None  # a byte for each signal, at once and even within a call of C
        self.held = Lock()

    @property
    def pending(self) -> int | None:
        """Number of the first signal, or None; the process still ends if the work does not look for it."""
        return self._received

    @property
    def received(self) -> int | None:
        """Number of the first signal, or None; the work ends in time from then on."""
        self._is_seen |= self._received is not None
        return self._received

    def __enter__(self) -> Self:
        self._outer = _current.set(self)
        if current_thread() is not main_thread():  # which alone may have handlers
            return self
        if self._seconds is not None:
            self._pipe = os.pipe()
            os.set_blocking(self._pipe[1], False)
            self._previous_wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            Thread(target=self._end_late, name="signals", args=(self._pipe[0], self._seconds), daemon=True).start()
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays in force
                self._previous[number] = signal.signal(number, self._record)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._outer)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._pipe is not None:
            signal.set_wakeup_fd(self._previous_wakeup)
            self._is_seen = True
            os.close(self._pipe[1])

    def _record(self, number: int, _frame: FrameType | None) -> None:
        self._num_interrupts += number == signal.SIGINT
        if self._num_interrupts > 1:
            raise KeyboardInterrupt
        self._received = self._received or number

    def check(self) -> None:
        """Raise Interrupted if a signal was received."""
        if (number := self.received) is not None:
            raise Interrupted(number)
        self._also()

    def _end_late(self, pipe: int, seconds: float) -> None:
        """End the process some time after the first signal, unless the work looks for it before. pipe: see `_pipe`"""
        number = 0
        with open(pipe, "rb", buffering=0) as file:
            while number not in self._previous:
                if not (byte := file.read(1)):
                    return
                number = byte[0]
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and not self._is_seen:
                time.sleep(POLL_SECONDS)
            with self.held:
                if not self._is_seen:
                    name = signal.Signals(number).name
                    message = f"nmt: error: ended by {name}: the work did not stop within {seconds:.0f} s\n"
                    with contextlib.suppress(OSError):
                        os.write(2, message.encode())
                    os._exit(128 + number)
            file.readall()  # until `__exit__`: the byte of a later signal needs a reader


_current: Final = ContextVar("signals", default=Signals(None))  # noqa: B039 never entered, so it never changes


def innermost() -> Signals:
    """The innermost open Signals of this thread's context; without one, an object that receives nothing."""
    return _current.get()


def check() -> None:
    """Called by long work where it can stop: raises Interrupted if a signal asked to."""
    innermost().check()
