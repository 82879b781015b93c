"""The live display of `nmt train` on a terminal: progress, curves, speed, memory, and the next validation and checkpoint.

A thread of rich draws it every second from numbers that training leaves here. Training never waits for it.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nmt.extensions.watch.pictures.figures import sparkline
from nmt.log import log
from nmt.quantities import clock, operations, size
from nmt.report.run_status import VALIDATION_PREFIX, RunStatus

MAX_CURVE_POINTS: Final = 256  # maximum number of points; more are averaged in pairs
MIN_CURVE_CELLS: Final = 8
MAX_CURVE_CELLS: Final = 48
LABEL_CELLS: Final = 10


class RunningCurve:
    """The values of a number over a whole run, as means over equal intervals, in bounded memory. last: the latest value"""

    def __init__(self) -> None:
        self.points: list[float] = []
        self.last = 0.0
        self._stretch, self._sum, self._count = 1, 0.0, 0

    def add(self, value: float) -> None:
        self.last, self._sum, self._count = value, self._sum + value, self._count + 1
        if self._count < self._stretch:
            return
        self.points = [*self.points, self._sum / self._count]
        self._sum, self._count = 0.0, 0
        if len(self.points) == MAX_CURVE_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=True)
            self.points, self._stretch = [sum(pair) / 2 for pair in pairs], 2 * self._stretch


class TrainingDisplay:
    """Draws the state of a run every second, with the active progress bars below it. Log lines appear above it."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._shown: tuple[RunStatus, float] | None = None  # the latest status and the time when it arrived
        self._curves: dict[str, RunningCurve] = {}
        self.examples: Sequence[tuple[str, str, str]] = ()  # (source, translation, reference) of the last validation
        self._live = Live(
            get_renderable=self.render,
            console=log.console,
            refresh_per_second=1,
            transient=True,
            redirect_stdout=False,  # stdout may go to a file of results
        )

    def start(self) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone, and SIGHUP will follow
            self._live.start()
            log.draws_bars = True

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._live.stop()
        log.draws_bars = False  # last, because a bar would start a second display while this one is on the screen

    def add(self, values: Mapping[str, float | None]) -> None:
        """Add the record of an update or a validation."""
        for name, value in values.items():
            has_curve = name == "loss" or (name.startswith(VALIDATION_PREFIX) and name != "valid_ppl")
            if value is not None and has_curve:
                self._curves.setdefault(name, RunningCurve()).add(value)

    def show(self, status: RunStatus) -> None:
        self._shown = status, time.monotonic()

    def render(self) -> RenderableType:
        """The current display."""
        bars = log.bars()
        spent = clock(time.monotonic() - self._began)
        if self._shown is None:
            return Group(_line(f"starting, {spent} so far"), bars)
        status, shown = self._shown
        passed = time.monotonic() - shown
        cells = max(MIN_CURVE_CELLS, min(MAX_CURVE_CELLS, log.console.width // 3))
        grid = Table.grid(padding=(0, 1))
        grid.add_column(style="bold", no_wrap=True, min_width=LABEL_CELLS)
        grid.add_column(style="cyan", no_wrap=True, min_width=cells)
        grid.add_column(no_wrap=True, overflow="ellipsis")
        left = "" if status.seconds_left is None else f", ETA {clock(max(0.0, status.seconds_left - passed))}"
        if status.total is None:
            grid.add_row("run", "", f"{status.update:,} updates, {spent} so far")
        else:
            run = f"{status.update:,}/{status.total:,} updates, {spent} so far{left}"
            grid.add_row("run", _bar(status.update / status.total, cells), run)
        share = status.epochs % 1
        grid.add_row("epoch", _bar(share, cells), f"{int(status.epochs) + 1}, {100 * share:.0f} %")
        for name, curve in list(self._curves.items()):
            text = status.loss_text() if name == "loss" else f"{curve.last:.4g}"
            grid.add_row(Text(name.replace("_", " ")), sparkline(curve.points, cells), Text(text))
        events = status.events.items()
        rows = {
            "speed": f"{status.window.speed:,.0f} tokens/s, {100 * status.window.padding:.1f} % padding, "
            f"{operations(status.window.flops_per_second)}/s",
            "memory": f"{size(status.memory)} at the peak",
            "next": ", ".join(f"{name} in {clock(max(0.0, seconds - passed))}" for name, seconds in events),
            "best": status.best or "no checkpoint yet",
        }
        details = Table.grid(padding=(0, 1))
        details.add_column(style="bold", no_wrap=True, min_width=LABEL_CELLS)
        details.add_column(no_wrap=True, overflow="ellipsis")
        for name, value in rows.items():
            details.add_row(name, Text(value))
        examples = [
            _line(f"{label}  {text}", style)
            for source, output, reference in self.examples
            for label, text, style in (("src", source, "dim"), ("out", output, "green"), ("ref", reference, "dim"))
        ]
        return Group(grid, details, *examples, bars)


def _bar(share: float, cells: int) -> ProgressBar:
    return ProgressBar(total=1.0, completed=min(share, 1.0), width=cells)


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, overflow="ellipsis", no_wrap=True)
