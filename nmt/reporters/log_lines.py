"""The log lines of a training run, on stderr and in train.log."""

import contextlib
import os
from pathlib import Path
from typing import Any

from nmt import register
from nmt.files import open_to_append
from nmt.log import log
from nmt.report.run_status import TRAIN_LOG
from nmt.reporters.base import Reporter
from nmt.reporters.options import LogLinesOptions


@register("reporter", "log-lines", LogLinesOptions)
class LogLines(Reporter):
    """Log lines on stderr and in train.log."""

    def __init__(self, options: Any, folder: Path) -> None:
        self._path = folder / TRAIN_LOG

    def start(self) -> None:
        """Raises ResourceError if train.log cannot be opened."""
        descriptor = open_to_append(self._path)
        self._file = os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace", newline="\n")

    def line(self, text: str, on_screen: bool) -> None:
        """See Reporter."""
        with contextlib.suppress(OSError):  # a full disk must not end training
            self._file.write(text + "\n")
            self._file.flush()
        if on_screen:
            log.info(text)

    def close(self) -> None:
        """See Reporter."""
        with contextlib.suppress(OSError):
            self._file.close()
