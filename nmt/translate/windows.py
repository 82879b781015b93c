"""Read lines as they come, in windows, so that a typed line is answered at once and a large file in bulk."""

import contextlib
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from nmt import signals
from nmt.errors import InputError, ResourceError, UserError, quoted
from nmt.storages.base import open_text
from nmt.storages.streams import Stream, compression_of
from nmt.text.corpus import MAX_RAW_LINE_BYTES, checked_line, raw_lines

STDIN_NAME: Final = "-"
STREAM_READ_BYTES: Final = 1 << 16
SIGNAL_POLL_SECONDS: Final = 0.2
NEXT_LINE_SECONDS: Final = 0.02  # time that an open window waits for the next line
WINDOW_SECONDS: Final = 0.2  # age at which a window waits no longer, so that lines that trickle in are answered too
MAX_WINDOW_BYTES: Final = 1 << 22
FIRST_WINDOW_LINES: Final = 16
WINDOW_GROWTH: Final = 4
BEGUN_CHARACTER: Final = re.compile(rb"[\xc0-\xff][\x80-\xbf]{0,2}\Z")  # of UTF-8, without its last byte


class Pipe:
    """A file descriptor of any kind: a pipe, a terminal, a file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._has_begun = False
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def waiting(self, seconds: float) -> bool:
        """Whether bytes, or the end, can be read now or within `seconds`."""
        return bool(self._poll.poll(1000 * seconds))

    def read(self) -> bytes:
        """The next bytes; none at the end."""
        chunk = os.read(self._descriptor, STREAM_READ_BYTES)
        if not self._has_begun and (format := compression_of(chunk)):
            raise InputError(f"the text is {format}, and a pipe is not unpacked (unpack it before, or name the file)")
        self._has_begun = True
        return chunk


class LineEstimate:
    """An estimate of the lines of some files together, from the lines and the bytes on disk that were read so far.

    names: the files, compressed or not; where one is a pipe or a member of an archive, there is no estimate
    """

    def __init__(self, *names: str) -> None:
        files = [Path(name) for name in names if name != STDIN_NAME and Path(name).is_file()]
        self._size = sum(file.stat().st_size for file in files) if len(files) == len(names) else None
        self._num_lines = self._num_bytes = 0

    def add(self, num_lines: int, num_bytes: int) -> None:
        """Count what was read."""
        self._num_lines, self._num_bytes = self._num_lines + num_lines, self._num_bytes + num_bytes

    def total(self) -> int | None:
        """The lines of all files; None while that is unknown."""
        if self._size is None or not self._num_bytes:
            return None
        return round(self._num_lines * self._size / self._num_bytes)


class File:
    """A file of text, decompressed by `open_text`, whose next bytes never have to be waited for.

    estimate: is told what is read
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
    """Where a text comes from; see Pipe."""

    def waiting(self, seconds: float) -> bool: ...

    def read(self) -> bytes: ...


def place_of(name: str) -> str:
    """The name of a text in messages."""
    return "stdin" if name == STDIN_NAME else quoted(name)


@contextlib.contextmanager
def open_source(name: str, estimate: LineEstimate) -> Iterator[Source]:
    """A file or pipe by name; "-" is stdin. Raises UserError if it does not exist.

    estimate: of the lines of this file, and of others that are read before and after it
    """
    path = Path(name)
    if name == STDIN_NAME:
        if sys.stdin is None:
            raise UserError("stdin is closed (give it text, or name a file)")
        yield Pipe(sys.stdin.fileno())
    elif path.is_fifo() or path.is_char_device():
        with path.open("rb", buffering=0) as pipe:
            yield Pipe(pipe.fileno())
    else:
        with open_text(path) as file:
            yield File(file, estimate)


class _LineSplitter:
    """Splits bytes at LF. max_bytes: kept of a line; the time that a long line takes is proportional to it"""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._partial = bytearray()  # the start of a line without its end

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk, each with its LF."""
        *ended, rest = chunk.split(b"\n")
        if ended:
            self._extend(ended[0])
            ended[0] = bytes(self._partial)
            self._partial.clear()
        self._extend(rest)
        return [self._cut(line) + b"\n" for line in ended]

    def end(self) -> list[bytes]:
        """The last line, if it has no LF."""
        return [self._cut(bytes(self._partial))] if self._partial else []

    def _extend(self, part: bytes) -> None:
        self._partial += part[: max(0, self._max_bytes + 1 - len(self._partial))]

    def _cut(self, line: bytes) -> bytes:
        end = self._max_bytes
        if len(line) > end and line[end] & 0xC0 == 0x80:  # inside a character: cut before it
            begun = BEGUN_CHARACTER.search(line, max(0, end - 3), end)
            end = begun.start() if begun else end
        return line[:end]


def growing(max_lines: int) -> Iterator[int]:
    """Sizes of windows for a waiting reader: small at first, so that the first answer comes soon, then larger."""
    size = min(FIRST_WINDOW_LINES, max_lines)
    while True:
        yield size
        size = min(WINDOW_GROWTH * size, max_lines)


def windows(
    source: Source, sizes: Iterator[int], max_line_bytes: int, idle: Callable[[], None] = signals.check
) -> Iterator[list[bytes]]:
    """Raw lines in lists, each given when it is full or no further line is waiting.

    sizes: lines of each full window, without end; a window is also full with MAX_WINDOW_BYTES
    max_line_bytes: kept of a line
    idle: called while no line is waiting
    """
    splitter = _LineSplitter(max_line_bytes)
    lines: list[bytes] = []
    size, num_bytes, started = next(sizes), 0, 0.0
    while True:
        while not source.waiting(SIGNAL_POLL_SECONDS):
            idle()
        if not lines:
            started = time.monotonic()
        try:
            chunk = source.read()
        except OSError as error:  # otherwise taken for an error of the output
            name = "the text" if error.filename is None else quoted(error.filename)
            raise ResourceError(f"{name}: cannot be read: {error.strerror or error}") from error
        ended = splitter.feed(chunk) if chunk else splitter.end()
        if chunk and not ended:  # a line may have no end
            idle()
        for line in ended:
            lines.append(line)
            num_bytes += len(line)
            if len(lines) == size or num_bytes >= MAX_WINDOW_BYTES:
                yield lines
                lines, num_bytes, size = [], 0, next(sizes)
        patience = NEXT_LINE_SECONDS if time.monotonic() - started < WINDOW_SECONDS else 0.0
        if lines and (not chunk or not source.waiting(patience)):
            yield lines
            lines, num_bytes = [], 0
        if not chunk:
            return


def pairs(source: str, target: str, size: int, estimate: LineEstimate) -> Iterator[tuple[list[str], list[str]]]:
    """Two texts side by side, at most `size` lines at once; one of them may be stdin, "-", read as it comes.

    estimate: of the lines of `source`
    Raises InputError if a text is not UTF-8 or they differ in length. A longer line than MAX_RAW_LINE_BYTES is cut, or an
    InputError.
    """
    live, stored = (target, source) if target == STDIN_NAME else (source, target)
    others, first = raw_lines(Path(stored)), 1
    with open_source(live, estimate) as stream:
        for window in windows(stream, growing(size), MAX_RAW_LINE_BYTES):
            rows = list(islice(others, len(window)))
            if len(rows) < len(window):
                raise _longer(live, stored, first + len(rows) - 1)
            live_lines, stored_lines = (
                [checked_line(place_of(name), number, raw) for number, raw in enumerate(lines, first)]
                for name, lines in ((live, window), (stored, rows))
            )
            yield (stored_lines, live_lines) if target == STDIN_NAME else (live_lines, stored_lines)
            first += len(window)
    if next(others, None) is not None:
        raise _longer(stored, live, first - 1)


def _longer(longer: str, shorter: str, num_lines: int) -> InputError:
    """The error for texts of different lengths. The longer one is not counted: a stream may have no end."""
    return InputError(
        f"{place_of(longer)} has more lines than {place_of(shorter)}, which has {num_lines:,}; "
        "line i of one must translate line i of the other"
    )
