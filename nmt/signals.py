"""Signals as flags: a handler records a signal, and the work checks for it at points where it can stop safely.

Work calls `check()` regularly. Within `with Signals():` this raises Interrupted after a signal. Elsewhere, such as in a separate
thread or in a notebook, it does nothing.
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
"""Functions that tell at exit whether threads unknown to Python are still working and would delay the exit."""

DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG of linux/prctl.h
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)
END_SECONDS: Final = 9.0  # time between a signal and the end of a process that does not check for it
POLL_SECONDS: Final = 0.1


def signal_at_end_of_parent(number: int) -> None:
    """Make this process receive a signal when its parent ends for any reason. Linux only.

    SIGCONT continues a stopped process, so that it can end by itself.
    """
    if sys.platform == "linux":
        import ctypes  # slow to import, and needed only in child processes

        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, number)


class Signals:
    """A context in which TERM, USR1, HUP and the first INT are only recorded. A second INT interrupts immediately.

    If the work does not check for a signal within some time, because of a long call or a plug-in that blocks, a thread ends the
    process. Files and folders are then complete, or still have their temporary names.

    seconds: how long the thread waits; None starts no thread
    also: callback for each check; can raise an error to stop for another reason
    held: lock to hold during work that must not be interrupted, such as writing a checkpoint
    """

    def __init__(self, seconds: float | None = END_SECONDS, also: Callable[[], None] = lambda: None) -> None:
        self._received: int | None = None
        self._seconds, self._is_seen = seconds, False  # _is_seen: whether the work has noticed the signal
        self._also, self._num_interrupts = also, 0
        self._previous: dict[int, Any] = {}  # previous handlers
        self._previous_wakeup = -1
        self._pipe: tuple[int, int] | None = None  # receives a byte per signal immediately, even during a call into C
        self.held = Lock()

    @property
    def pending(self) -> int | None:
        """Number of the first signal, or None. Reading this does not count as noticing the signal."""
        return self._received

    @property
    def received(self) -> int | None:
        """Number of the first signal, or None. Reading this counts as noticing the signal: the work must then stop soon."""
        self._is_seen |= self._received is not None
        return self._received

    def __enter__(self) -> Self:
        self._outer = _current.set(self)
        if current_thread() is not main_thread():  # only the main thread can set handlers
            return self
        if self._seconds is not None:
            self._pipe = os.pipe()
            os.set_blocking(self._pipe[1], False)
            self._previous_wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            Thread(target=self._end_late, name="signals", args=(self._pipe[0], self._seconds), daemon=True).start()
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # respect nohup
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
        """End the process `seconds` after the first signal, unless the work notices the signal by then. pipe: see `_pipe`"""
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
            file.readall()  # read until `__exit__`, because the bytes of later signals need a reader


_current: Final = ContextVar("signals", default=Signals(None))  # noqa: B039 never entered, so it never changes


def innermost() -> Signals:
    """The innermost open Signals of this thread's context, or an object that never receives a signal."""
    return _current.get()


def check() -> None:
    """Called during long work at points where it can stop. Raises Interrupted after a signal."""
    innermost().check()
