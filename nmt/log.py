"""Everything that is told to a person while nmt works: stderr, through rich on a terminal; stdout is for results only."""

import sys
from typing import TYPE_CHECKING, Final

from nmt.errors import one_line

if TYPE_CHECKING:  # rich is imported when something is drawn
    from rich.console import Console
    from rich.progress import Progress

WIDTH_OF_FILES: Final = 160  # columns of a table where no terminal says how many it has


class Log:
    """Messages to stderr. `quiet` keeps warnings and errors only."""

    def __init__(self) -> None:
        self.quiet = False
        self._console: Console | None = None

    @property
    def console(self) -> "Console":
        """rich's console on stderr, made when first used."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        return self._console

    @property
    def live(self) -> bool:
        """Whether a person watches: stderr is a terminal and nobody asked for quiet."""
        return not self.quiet and self.console.is_terminal

    def info(self, message: str) -> None:
        if not self.quiet:
            self._line(message)

    def warn(self, message: str) -> None:
        self._line(f"nmt: warning: {one_line(message)}")

    def error(self, message: str) -> None:
        self._line(f"nmt: error: {one_line(message)}")

    def table(self, table: object) -> None:
        """A rich table or other renderable."""
        if not self.quiet:
            self.console.print(table, width=None if self.console.is_terminal else WIDTH_OF_FILES)

    def _line(self, message: str) -> None:
        if self._console is not None and self._console.is_terminal:
            from rich.markup import escape

            self._console.print(escape(message))
        else:
            sys.stderr.write(message + "\n")
            sys.stderr.flush()

    def progress(self) -> "Progress":
        """A progress bar with an estimate of the time left; shown on a terminal only."""
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
