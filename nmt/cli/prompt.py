"""The prompt of `nmt translate` on a terminal, with line editing and the history of this session."""

import signal
import sys
from types import FrameType
from typing import NoReturn

from nmt.errors import Interrupted
from nmt.log import log
from nmt.signals import STOP_SIGNALS
from nmt.translate.windows import STDIN_NAME


def is_terminal() -> bool:
    """Whether both stdin and stdout are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def is_typed(*names: str) -> bool:
    """Whether any of these texts is typed on a terminal, where a progress bar would overwrite it."""
    return STDIN_NAME in names and sys.stdin is not None and sys.stdin.isatty()


class Prompt:
    """A text that is typed line by line, as a Source of nmt.translate.windows. It ends at Ctrl-D.

    mark: the prompt before each line
    """

    def __init__(self, mark: str) -> None:
        import readline  # noqa: F401  # adds editing and history to `input`

        log.info("type a line of text, or Ctrl-D to end")
        self._mark = mark
        self._has_line = False  # whether a line has been read but not translated yet

    def waiting(self, seconds: float) -> bool:
        """Whether to read another line: only after the previous one is translated."""
        self._has_line, had_line = False, self._has_line
        return not had_line

    def read(self) -> bytes:
        """The next line with its LF; empty at the end. A signal ends the wait with Interrupted."""
        previous = {number: signal.signal(number, _interrupt) for number in STOP_SIGNALS}
        try:
            line = input(self._mark)
        except EOFError:
            sys.stderr.write("\n")
            return b""
        except Interrupted:
            sys.stderr.write("\n")  # the shell's prompt starts on its own line
            raise
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        self._has_line = True
        return line.encode("utf-8", "surrogateescape") + b"\n"


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    raise Interrupted(number)
