"""The prompt of `nmt translate` on a terminal: lines that are typed, with editing and the history of this session."""

import signal
import sys
from types import FrameType
from typing import NoReturn

from nmt.errors import Interrupted
from nmt.log import log
from nmt.signals import STOP_SIGNALS
from nmt.translate.windows import STDIN_NAME


def is_terminal() -> bool:
    """Whether a person types the text and reads the translations."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def is_typed(*names: str) -> bool:
    """Whether one of these texts is typed on a terminal, where a bar would write over it."""
    return STDIN_NAME in names and sys.stdin is not None and sys.stdin.isatty()


class Prompt:
    """A text that is typed line by line; a Source of nmt.translate.windows. Ends at ^D.

    mark: what stands before each line
    """

    def __init__(self, mark: str) -> None:
        import readline  # noqa: F401  # gives `input` editing and history

        log.info("type a line of text; Ctrl-D ends")
        self._mark = mark
        self._has_line = False  # read, and not yet translated

    def waiting(self, seconds: float) -> bool:
        """Whether to read on: not before the line that was read is translated."""
        self._has_line, had_line = False, self._has_line
        return not had_line

    def read(self) -> bytes:
        """The next line with its LF; nothing at the end. A signal ends the wait with Interrupted."""
        previous = {number: signal.signal(number, _interrupt) for number in STOP_SIGNALS}
        try:
            line = input(self._mark)
        except EOFError:
            sys.stderr.write("\n")
            return b""
        except Interrupted:
            sys.stderr.write("\n")  # the shell's prompt begins a line of its own
            raise
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        self._has_line = True
        return line.encode("utf-8", "surrogateescape") + b"\n"


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    raise Interrupted(number)
