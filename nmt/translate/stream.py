"""Translating a stream, as many lines out as in, for as long as there is somebody to read them."""

import contextlib
import errno
import io
import os
import select
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import repeat
from pathlib import Path
from typing import BinaryIO, Protocol

from nmt.artefact import new_file
from nmt.log import log
from nmt.signals import Signals
from nmt.translate.rate_limited_warnings import RateLimitedWarnings
from nmt.translate.requests import MOST_BYTES, Form, Request, read_request
from nmt.translate.results import Translation
from nmt.translate.windows import Source, growing, texts, windows


class Translating(Protocol):
    """What translates: a Translator, or one that shares its lines out."""

    @property
    def max_characters(self) -> int:
        """Characters of a line that are read at all."""

    def translate(
        self, requests: Sequence[Request], place: str, first: int, check: Callable[[], None] | None
    ) -> list[Translation]:
        """A translation for each line, in their order."""

    def wait(self) -> None:
        """Called while no line has come."""


class Output:
    """Where translations go: a file, or somebody who reads them as they come, and may go away.

    awaited: whether somebody may be waiting for the next line, as nobody is for that of a file
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._poll = select.poll()
        self.awaited = True
        with contextlib.suppress(io.UnsupportedOperation):  # it is none of the system's files
            self._poll.register(file.fileno(), 0)  # that nobody reads any more is told unasked
            self.awaited = not stat.S_ISREG(os.fstat(file.fileno()).st_mode)

    def write(self, lines: str) -> None:
        """Raises OSError, which then names what could not be written to."""
        try:
            self._file.write(lines.encode())
            self._file.flush()
        except OSError as error:
            error.filename = error.filename or str(self._file.name).strip("<>")
            raise

    def check(self) -> None:
        """Raises BrokenPipeError when the reader went away: what is searched on would be for nobody."""
        if any(events & (select.POLLERR | select.POLLHUP) for _, events in self._poll.poll(0)):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def new_output(path: Path) -> AbstractContextManager[BinaryIO]:
    """A file to write results to, which is there when all of them are; a device is written directly."""
    return path.open("wb") if path.exists() and not path.is_file() else new_file(path)


def translate_stream(
    translator: Translating,
    source: Source,
    output: BinaryIO,
    form: Form,
    show: Callable[[int, Request, Translation], str],
    most_lines: int,
    place: str,
    strict: bool,
) -> int:
    """Translate every line of source to output, window by window, until the end or a signal (Interrupted).

    form: what stands on a line
    most_lines: that are read ahead, and sorted by length; fewer at first where somebody waits
    show: (number of the line from 0, what it asks for, its translation) -> one or more lines, each with its LF
    returns: how many lines had bytes that are not UTF-8
    """
    bad, results = RateLimitedWarnings(log.warn), Output(output)
    sizes = growing(most_lines) if results.awaited else repeat(most_lines)
    with Signals() as signals:

        def check() -> None:
            signals.check()
            results.check()

        def waiting() -> None:
            check()
            translator.wait()

        longest = 4 * translator.max_characters + 4  # bytes: cut here only what the translator cuts as well
        if form != "text":
            longest = max(longest, MOST_BYTES)  # what else stands on a line is not for us to cut
        for window in texts(windows(source, sizes, longest, waiting), place, strict, bad):
            requests = [read_request(line, form) for line in window.lines]
            translations = translator.translate(requests, place, window.first, check)
            pairs = zip(requests, translations, strict=True)
            results.write("".join(show(number, *pair) for number, pair in enumerate(pairs, window.first - 1)))
            signals.check()
    return bad.count
