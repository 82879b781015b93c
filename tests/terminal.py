"""A command of nmt with a pseudo-terminal as its stderr."""

import os
import re
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from conftest import ENVIRONMENT
from forks import forked_nmt

SHOW_CURSOR = "\x1b[?25h"
HIDE_CURSOR = "\x1b[?25l"


class Terminal:
    """A running command whose stderr is a terminal.

    shared: which of stdin and stdout are that terminal too
    text: all that it has written there
    """

    def __init__(self, *arguments: object, columns: int = 100, shared: Sequence[str] = (), **given: Any) -> None:
        self.text = ""
        self._master, slave = os.openpty()
        termios.tcsetwinsize(slave, (40, columns))
        environment = {
            name: value for name, value in ENVIRONMENT.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **given}
        options |= dict.fromkeys(shared, slave)
        command = [forked_nmt(), *map(str, arguments)]
        self.process = subprocess.Popen(command, stderr=slave, env={**environment, "TERM": "xterm"}, **options)
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._stop = threading.Event()
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def _read(self) -> None:
        while not self._stop.is_set():
            try:
                read = os.read(self._master, 65536)
            except OSError:  # the command has ended
                return
            self.text += read.decode(errors="replace")

    def resize(self, columns: int) -> None:
        termios.tcsetwinsize(self._master, (40, columns))

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def hang_up(self) -> None:
        """Close the terminal, as a lost connection does."""
        self._stop.set()
        self._reader.join(30)
        os.close(self._master)

    def wait_for(self, condition: Callable[[], object], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.02)

    def end(self) -> tuple[int, bytes]:
        """Wait for the end of the command; returns its exit status and its stdout."""
        out, _ = self.process.communicate(timeout=120)
        self._reader.join(30)
        return self.process.returncode, out or b""

    @property
    def lines(self) -> list[str]:
        """The lines as they were written, without control sequences."""
        return plain(self.text).splitlines()


def plain(text: str) -> str:
    """A text without control sequences; carriage returns start lines."""
    return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", text).replace("\r\n", "\n").replace("\r", "\n")
