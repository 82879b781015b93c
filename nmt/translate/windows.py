"""Reads lines as they arrive, in windows: a typed line is answered immediately, and a large file is read in bulk."""

import contextlib
import os
import re
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from nmt import signals
from nmt.errors import InputError, ResourceError, UserError, quoted
from nmt.storages.base import open_text
from nmt.storages.streams import Stream, compression_of

STDIN_NAME: Final = "-"
STREAM_READ_BYTES: Final = 1 << 16
SIGNAL_POLL_SECONDS: Final = 0.2
MAX_WINDOW_BYTES: Final = 1 << 22
FIRST_WINDOW_LINES: Final = 16
WINDOW_GROWTH: Final = 4
PARTIAL_CHARACTER: Final = re.compile(rb"[\xc0-\xff][\x80-\xbf]{0,2}\Z")  # an incomplete UTF-8 character at the end


class Pipe:
    """A file descriptor of any kind: a pipe, a terminal, a file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._has_started = False
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def waiting(self, seconds: float) -> bool:
        """Whether bytes, or the end of the stream, can be read now or within `seconds`."""
        return bool(self._poll.poll(1000 * seconds))

    def read(self) -> bytes:
        """Read the next bytes; empty at the end."""
        chunk = os.read(self._descriptor, STREAM_READ_BYTES)
        if not self._has_started and (format := compression_of(chunk)):
            raise InputError(
                f"text from a pipe must not be compressed, but this is {format} (unpack it, or name the file)"
            )
        self._has_started = True
        return chunk


class LineEstimate:
    """An estimate of the total number of lines of some files, from the lines and bytes read so far.

    names: the files, compressed or not; there is no estimate if one is a pipe or a member of an archive
    """

    def __init__(self, *names: str) -> None:
        files = [Path(name) for name in names if name != STDIN_NAME and Path(name).is_file()]
        self._size = sum(file.stat().st_size for file in files) if len(files) == len(names) else None
        self._num_lines = self._num_bytes = 0

    def add(self, num_lines: int, num_bytes: int) -> None:
        """Add the number of lines that were read, and of the bytes that they take on disk."""
        self._num_lines, self._num_bytes = self._num_lines + num_lines, self._num_bytes + num_bytes

    def total(self) -> int | None:
        """The estimated number of lines of all files; None while it is unknown."""
        if self._size is None or not self._num_bytes:
            return None
        return round(self._num_lines * self._size / self._num_bytes)


class File:
    """A text file, decompressed by `open_text`. Its next bytes are always available.

    estimate: updated while the file is read
    """

    def __init__(self, file: Stream, estimate: LineEstimate) -> None:
        self._file, self._estimate = file, estimate
        self._num_bytes = 0

    def waiting(self, seconds: float) -> bool:
        return True

    def read(self) -> bytes:
        chunk = self._file.read(STREAM_READ_BYTES)
        num_bytes = self._file.disk.num_read
        self._estimate.add(chunk.count(b"\n"), num_bytes - self._num_bytes)
        self._num_bytes = num_bytes
        return chunk


class Source(Protocol):
    """A source of text; see Pipe."""

    def waiting(self, seconds: float) -> bool: ...

    def read(self) -> bytes: ...


def place_of(name: str) -> str:
    """The name of a text in messages."""
    return "stdin" if name == STDIN_NAME else quoted(name)


@contextlib.contextmanager
def open_source(name: str, estimate: LineEstimate) -> Iterator[Source]:
    """Open a file or pipe by name; "-" is stdin. Raises UserError if it does not exist.

    estimate: estimates the number of lines of this file and of the files that are read before and after it
    """
    path = Path(name)
    if name == STDIN_NAME:
        if sys.stdin is None:
            raise UserError("stdin is closed (pipe a text into it, or name a file)")
        yield Pipe(sys.stdin.fileno())
    elif path.is_fifo() or path.is_char_device():
        with path.open("rb", buffering=0) as pipe:
            yield Pipe(pipe.fileno())
    else:
        with open_text(path) as file:
            yield File(file, estimate)


class _LineSplitter:
    """Splits bytes into lines at LF. max_bytes: longer lines are truncated to this size, which also limits the time per line"""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._partial = bytearray()  # start of a line that has not ended yet

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that end in this chunk, each with its LF."""
        *ended, rest = chunk.split(b"\n")
        if ended:
            self._extend(ended[0])
            ended[0] = bytes(self._partial)
            self._partial.clear()
        self._extend(rest)
        return [self._truncated(line) + b"\n" for line in ended]

    def end(self) -> list[bytes]:
        """Return the last line, if it has no LF."""
        return [self._truncated(bytes(self._partial))] if self._partial else []

    def _extend(self, part: bytes) -> None:
        self._partial += part[: max(0, self._max_bytes + 1 - len(self._partial))]

    def _truncated(self, line: bytes) -> bytes:
        end = self._max_bytes
        if len(line) > end and line[end] & 0xC0 == 0x80:  # inside a character: truncate before it
            partial = PARTIAL_CHARACTER.search(line, max(0, end - 3), end)
            end = partial.start() if partial else end
        return line[:end]


def growing(max_lines: int) -> Iterator[int]:
    """The sizes of windows for a waiting reader: small at first, so that the first answer comes quickly, then larger."""
    size = min(FIRST_WINDOW_LINES, max_lines)
    while True:
        yield size
        size = min(WINDOW_GROWTH * size, max_lines)


def windows(
    source: Source, sizes: Iterator[int], max_line_bytes: int, idle: Callable[[], None] = signals.check
) -> Iterator[list[bytes]]:
    """Yield lists of raw lines. A list is complete when it is full or when no further line is waiting.

    A line that arrives alone is thus answered at once. While it is translated, further lines collect in the pipe.

    sizes: lines of each full window (an endless iterator); a window is also full with MAX_WINDOW_BYTES
    max_line_bytes: longer lines are truncated to this size
    idle: called while no line is waiting
    """
    splitter = _LineSplitter(max_line_bytes)
    lines: list[bytes] = []
    size, num_bytes = next(sizes), 0
    while True:
        while not source.waiting(SIGNAL_POLL_SECONDS):
            idle()
        try:
            chunk = source.read()
        except OSError as error:  # uncaught, it would look like an error of the output
            name = "the text" if error.filename is None else quoted(error.filename)
            raise ResourceError(f"{name}: cannot be read: {error.strerror or error}") from error
        ended = splitter.feed(chunk) if chunk else splitter.end()
        if chunk and not ended:  # a line may never end
            idle()
        for line in ended:
            lines.append(line)
            num_bytes += len(line)
            if len(lines) == size or num_bytes >= MAX_WINDOW_BYTES:
                yield lines
                lines, num_bytes, size = [], 0, next(sizes)
        if lines and (not chunk or not source.waiting(0.0)):
            yield lines
            lines, num_bytes = [], 0
        if not chunk:
            return
