"""Logging to stderr, with rich's progress bars on a terminal. Only results go to stdout."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from threading import RLock, Timer
from typing import TYPE_CHECKING, BinaryIO, Final

from nmt.errors import one_line
from nmt.quantities import clock

if TYPE_CHECKING:  # rich is imported only when used
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

MIN_BAR_SECONDS: Final = 2.0  # no bar is shown for shorter work
MAX_BAR_CELLS: Final = 40
REFRESHES_PER_SECOND: Final = 2
# Minimum and maximum time between progress lines if no bar is shown. Within these limits, it equals the time elapsed so far.
LINE_SECONDS: Final = 60.0, 600.0


def stamped(text: str) -> str:
    """A line with the local time before it."""
    return f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}"


class Bar:
    """The progress of some work: how much is done, the speed, and the remaining time.

    total: final count, known or estimated; None if unknown
    unit: plural noun for what is counted; empty to show only the time
    count: current count
    write: called with a progress line, first after a minute and then less often; None for no lines
    """

    def __init__(self, label: str, total: "int | Callable[[], int | None] | None" = None, unit: str = "") -> None:
        self.label, self.unit = label, unit
        self.count, self._total = 0, total
        self.write: Callable[[str], None] | None = None
        self._started = time.monotonic()
        self._next_line = self._started + LINE_SECONDS[0]
        self.ended = False

    def advance(self, count: int = 1) -> None:
        self.count += count
        if self.write is not None and (now := time.monotonic()) >= self._next_line:
            self._next_line = now + min(now - self._started, LINE_SECONDS[1])
            self.write(f"{self.label}: {self.text()}")

    @property
    def total(self) -> int | None:
        total = self._total() if callable(self._total) else self._total
        return None if total is None else max(total, self.count)

    def text(self) -> str:
        """The count, the mean speed, and the remaining time or, if that is unknown, the elapsed time."""
        count, total, seconds = self.count, self.total, time.monotonic() - self._started
        speed = count / seconds if seconds else 0.0
        parts = []
        if self.unit:
            parts = [f"{count:,} {self.unit}" if total is None else f"{count:,}/{total:,} {self.unit}"]
        if count:
            parts.append(f"{speed:,.0f} {self.unit}/s" if speed >= 10 else f"{speed:.2g} {self.unit}/s")
        parts.append(f"ETA {clock((total - count) / speed)}" if total and speed else f"{clock(seconds)} so far")
        return ", ".join(parts)


class Log:
    """Messages and progress bars on stderr.

    quiet: whether to write only warnings and errors
    verbose: whether to also write details
    draws_bars: set while another live display draws the bars
    """

    def __init__(self) -> None:
        self.quiet = self.verbose = self.draws_bars = False
        self._deprecated: set[str] = set()  # names that have been warned about
        self._bars: list[Bar] = []  # the bars that are shown
        self._lock = RLock()  # protects the bars, which timers show from separate threads
        self._console: Console | None = None
        self._live: Live | None = None

    @property
    def console(self) -> "Console":
        """rich's console for stderr, created on first use."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        return self._console

    @property
    def live(self) -> bool:
        """Whether progress bars are shown: stderr is a terminal, and `quiet` is not set."""
        return not self.quiet and sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")

    def info(self, message: str) -> None:
        if not self.quiet:
            self._line(message)

    def detail(self, message: str) -> None:
        if self.verbose:
            self.info(message)

    def warn(self, message: str) -> None:
        self._line(f"nmt: warning: {one_line(message)}")

    def deprecated(self, old: str, new: str) -> None:
        """Warn, once per process, that a deprecated name was used (docs/reference/stability.md)."""
        if old not in self._deprecated:
            self._deprecated.add(old)
            self.warn(f"{old} is deprecated (use {new})")

    def error(self, message: str) -> None:
        self._line(f"nmt: error: {one_line(message)}")

    def _line(self, message: str) -> None:
        try:
            if self._console is not None and self._console.is_terminal:
                from rich.text import Text

                self._console.print(Text(message))
            else:
                sys.stderr.write(message + "\n")
                sys.stderr.flush()
        except OSError:
            pass  # a closed terminal or pipe, or a full disk, must not end the work

    @contextlib.contextmanager
    def progress(
        self, label: str, total: "int | Callable[[], int | None] | None" = None, unit: str = "", *, shown: bool = True
    ) -> Iterator[Bar]:
        """Show a bar once the work has taken MIN_BAR_SECONDS (see Bar). Without a terminal, write a line occasionally.

        shown: if False, neither is shown
        """
        bar = Bar(label, total, unit)
        if not (shown and self.live):
            bar.write = self.info if shown else None
            yield bar
            return
        timer = Timer(MIN_BAR_SECONDS, self._show, [bar])
        timer.daemon = True
        timer.start()
        try:
            yield bar
        finally:
            timer.cancel()
            with self._lock:
                bar.ended = True
                if bar in self._bars:
                    self._bars.remove(bar)
                    self._draw()

    def bars(self) -> "Table":
        """The bars that are shown, one below the other."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True, overflow="ellipsis")
        table.add_column(max_width=MAX_BAR_CELLS)
        table.add_column(no_wrap=True, overflow="ellipsis")
        for bar in list(self._bars):
            drawn = ProgressBar(bar.total or None, bar.count, pulse=not bar.total)
            table.add_row(Text(bar.label), drawn, Text(bar.text()))
        return table

    @contextlib.contextmanager
    def hidden_bars(self, output: BinaryIO) -> Iterator[None]:
        """Hide the bars while results are written to an output that is also a terminal."""
        if not (self.live and output.isatty()):
            yield
            return
        with self._lock:
            bars, self._bars = self._bars, []
            self._draw()
            try:
                yield
            finally:
                self._bars = bars
                self._draw()

    def _show(self, bar: Bar) -> None:
        with self._lock:
            if not bar.ended:
                self._bars.append(bar)
                self._draw()

    def _draw(self) -> None:
        """Draw the current bars. A thread of rich then redraws them until none is left."""
        with contextlib.suppress(OSError):  # the terminal is gone, and SIGHUP will follow
            wanted = bool(self._bars) and not self.draws_bars
            if self._live is not None and not wanted:
                live, self._live = self._live, None
                live.stop()
            elif self._live is None and wanted:
                from rich.live import Live

                self._live = Live(
                    get_renderable=self.bars,
                    console=self.console,
                    refresh_per_second=REFRESHES_PER_SECOND,
                    transient=True,
                    redirect_stdout=False,  # results on stdout may go to a file
                    redirect_stderr=False,  # all lines pass through this log
                )
                self._live.start(refresh=True)
            elif self._live is not None:
                self._live.refresh()


log: Final = Log()
