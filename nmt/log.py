"""Logging to stderr, by rich on a terminal. stdout carries results only."""

import sys
from typing import TYPE_CHECKING, Final

from nmt.errors import one_line

if TYPE_CHECKING:  # rich is imported when used
    from rich.console import Console
    from rich.progress import Progress

FILE_WIDTH_COLUMNS: Final = 160  # of a table where stderr is no terminal


class Log:
    """Messages to stderr.

    quiet: whether only warnings and errors are written
    verbose: whether details are written too
    """

    def __init__(self) -> None:
        self.quiet = self.verbose = False
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
        return not self.quiet and self.console.is_terminal

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
        if self._console is not None and self._console.is_terminal:
            from rich.markup import escape

            self._console.print(escape(message))
        else:
            sys.stderr.write(message + "\n")
            sys.stderr.flush()

    def progress(self) -> "Progress":
        """A progress bar with an estimate of the time left, on a terminal only."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.live,
        )


log: Final = Log()
