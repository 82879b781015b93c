"""Logging to stderr, with progress bars by rich on a terminal. stdout carries results only."""

import contextlib
import errno
import math
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from nmt.errors import one_line

if TYPE_CHECKING:  # rich is imported when used
    from rich.console import Console
    from rich.progress import Progress, TaskID

FILE_WIDTH_COLUMNS: Final = 160  # of a table where stderr is no terminal
MIN_BAR_SECONDS: Final = 2.0  # shorter work shows no bar


class Bar:
    """The progress of some work: count, speed and time left, drawn once it has taken MIN_BAR_SECONDS.

    count: so far; total: of the count, or None if unknown; unit: what is counted, in the plural
    """

    def __init__(self, log: "Log", label: str, total: int | None, unit: str) -> None:
        self._log, self._label, self._total, self._unit = log, label, total, unit
        self._due = time.monotonic() + MIN_BAR_SECONDS if log.live else math.inf
        self.count = 0
        self._task: TaskID | None = None

    def advance(self, count: int = 1) -> None:
        self.count += count
        if self._task is not None and self._log.bars is not None:
            self._log.bars.update(self._task, completed=self.count)
        elif time.monotonic() >= self._due:
            bars = self._log.open_bars()
            self._task = bars.add_task(self._label, total=self._total, completed=self.count, unit=self._unit)
            with contextlib.suppress(OSError):  # the terminal is gone, and SIGHUP is on its way
                bars.refresh()

    def close(self) -> None:
        if self._task is not None and self._log.bars is not None:
            self._log.bars.remove_task(self._task)
            self._log.close_bars()


class Log:
    """Messages and progress bars on stderr.

    quiet: whether only warnings and errors are written
    verbose: whether details are written too
    bars: the bars that are open, for a live display that draws them; None without any
    draws_bars: whether such a display draws them
    """

    def __init__(self) -> None:
        self.quiet = self.verbose = self.draws_bars = False
        self.bars: Progress | None = None
        self._console: Console | None = None

    @property
    def console(self) -> "Console":
        """rich's console on stderr, created when first used."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        return self._console

    @property
    def live(self) -> bool:
        """Whether progress is shown: stderr is a terminal, and not quiet."""
        return not self.quiet and sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")

    def info(self, message: str) -> None:
        if not self.quiet:
            self._line(message)

    def detail(self, message: str) -> None:
        if self.verbose:
            self.info(message)

    def warn(self, message: str) -> None:
        self._line(f"nmt: warning: {one_line(message)}")

    def error(self, message: str) -> None:
        self._line(f"nmt: error: {one_line(message)}")

    def table(self, table: object) -> None:
        """Print a rich table or another renderable."""
        if not self.quiet:
            self.console.print(table, width=None if self.console.is_terminal else FILE_WIDTH_COLUMNS)

    def _line(self, message: str) -> None:
        try:
            if self._console is not None and self._console.is_terminal:
                from rich.text import Text

                self._console.print(Text(message))
            else:
                sys.stderr.write(message + "\n")
                sys.stderr.flush()
        except OSError as error:
            if error.errno != errno.EIO:  # the terminal is gone, and SIGHUP is on its way
                raise

    @contextlib.contextmanager
    def progress(self, label: str, total: int | None, unit: str) -> Iterator[Bar]:
        """A bar for some work, on a terminal only. unit: what is counted, in the plural"""
        bar = Bar(self, label, total, unit)
        try:
            yield bar
        finally:
            bar.close()

    def open_bars(self) -> "Progress":
        """The bars on the screen, below each other."""
        if self.bars is None:
            from nmt.bars import new_bars

            self.bars = new_bars(self.console)
            if not self.draws_bars:
                with contextlib.suppress(OSError):
                    self.bars.start()
        return self.bars

    def close_bars(self) -> None:
        """Remove the bars from the screen unless one is still open."""
        if self.bars is not None and not self.bars.task_ids:
            with contextlib.suppress(OSError):
                self.bars.stop()
            self.bars = None


log: Final = Log()
