"""Lines that come when they come: read in windows, so that a typed line is answered at once and a large file in bulk."""

import contextlib
import gzip
import os
import select
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from nmt.errors import InputError, ResourceError, UserError, quoted
from nmt.text.compression import GZIP_MAGIC
from nmt.text.corpus import decode_line, open_text, raw_lines
from nmt.translate.rate_limited_warnings import RateLimitedWarnings

STDIN: Final = "-"
CHUNK: Final = 1 << 16  # bytes
LOOK_AT_SIGNALS: Final = 0.2  # seconds
GRACE: Final = 0.02  # seconds that a window waits for the next line
PATIENCE: Final = 0.2  # seconds after which it no longer waits: lines that trickle in are answered too
MOST_HELD: Final = 1 << 22  # bytes of a window, whatever its lines: one that has so many waits for no further line
FIRST: Final = 16  # lines of the first window where somebody waits for them
GROWTH: Final = 4  # times that the next one may hold
LONGEST_CHARACTER: Final = 4  # bytes
UNCUT: Final = sys.maxsize  # bytes of a line


class Source(Protocol):
    """Where bytes come from."""

    def waiting(self, seconds: float) -> bool:
        """Whether bytes, or the end, can be read now or within `seconds`."""

    def read(self) -> bytes:
        """Some bytes; none at the end."""


class Pipe:
    """A file descriptor of any kind: a pipe, a terminal, a file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._begun = False
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def waiting(self, seconds: float) -> bool:
        return bool(self._poll.poll(1000 * seconds))

    def read(self) -> bytes:
        chunk = os.read(self._descriptor, CHUNK)
        if not self._begun and chunk.startswith(GZIP_MAGIC):
            raise InputError("the text is gzip, which is read from files only (name the file, or gunzip it)")
        self._begun = True
        return chunk


class File:
    """A file of text, plain or compressed; reading raises InputError for damaged gzip."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path = file, path

    def waiting(self, seconds: float) -> bool:
        return True

    def read(self) -> bytes:
        try:
            return self._file.read(CHUNK)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{quoted(self._path)}: damaged gzip: {error}") from None


def place_of(name: str) -> str:
    """How a text is named in messages."""
    return "stdin" if name == STDIN else quoted(name)


@contextlib.contextmanager
def open_source(name: str) -> Iterator[Source]:
    """A file or pipe by name; "-" is stdin. Raises UserError when it is not there."""
    path = Path(name)
    if name == STDIN:
        if sys.stdin is None:
            raise UserError("stdin is closed (give it text, or name a file)")
        yield Pipe(sys.stdin.fileno())
    elif path.is_fifo() or path.is_char_device():
        with path.open("rb", buffering=0) as pipe:
            yield Pipe(pipe.fileno())
    else:
        with open_text(path) as file:
            yield File(file, path)


class _Splitter:
    """Cuts bytes at LF. longest: bytes of a line that are kept; the time a long line takes is in proportion to it."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._open = bytearray()  # the start of a line whose end has not come

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk, each with its LF."""
        *ended, rest = chunk.split(b"\n")
        if ended:
            self._extend(ended[0])
            ended[0] = bytes(self._open)
            self._open.clear()
        self._extend(rest)
        return [self._cut(line) + b"\n" for line in ended]

    def end(self) -> list[bytes]:
        """The last line, if it lacks its LF."""
        return [self._cut(bytes(self._open))] if self._open else []

    def _extend(self, part: bytes) -> None:
        self._open += part[: max(0, self._longest + 1 - len(self._open))]

    def _cut(self, line: bytes) -> bytes:
        if len(line) <= self._longest:
            return line
        end = self._longest
        for lead in range(end, max(end - LONGEST_CHARACTER, -1), -1):
            if line[lead] & 0xC0 == 0xC0:  # not in the middle of the character that begins here
                return line[:lead]
            if line[lead] < 0x80:
                break
        return line[:end]


def growing(most: int) -> Iterator[int]:
    """The sizes of windows for somebody who waits: a small one, so that the first answer comes soon, then larger ones."""
    size = min(FIRST, most)
    while True:
        yield size
        size = min(GROWTH * size, most)


def windows(source: Source, sizes: Iterator[int], longest: int, check: Callable[[], None]) -> Iterator[list[bytes]]:
    """Raw lines in lists, each given when it is full, or as soon as no further line is waiting.

    sizes: how many lines each full one has, without end; one of very long lines is full before
    longest: bytes of a line that are kept
    check: called while waiting; may raise to stop
    """
    splitter = _Splitter(longest)
    lines: list[bytes] = []
    size, held, started = next(sizes), 0, 0.0
    while True:
        while not source.waiting(LOOK_AT_SIGNALS):
            check()
        if not lines:
            started = time.monotonic()
        try:
            chunk = source.read()
        except OSError as error:  # which would be taken for one of the output
            raise ResourceError(f"the text cannot be read: {error.strerror or error}") from error
        for line in splitter.feed(chunk) if chunk else splitter.end():
            lines.append(line)
            held += len(line)
            if len(lines) == size or held >= MOST_HELD:
                yield lines
                lines, held, size = [], 0, next(sizes)
        patience = GRACE if time.monotonic() - started < PATIENCE else 0.0
        if lines and (not chunk or not source.waiting(patience)):
            yield lines
            lines, held = [], 0
        if not chunk:
            return


@dataclass(frozen=True)
class Window:
    """Lines as text. first: the number of the first of them in the input, counted from 1."""

    first: int
    lines: list[str]


def texts(raw_windows: Iterator[list[bytes]], place: str, strict: bool, bad: RateLimitedWarnings) -> Iterator[Window]:
    """Raw lines as text; bytes that are not UTF-8 are replaced, counted and named.

    strict: they are an InputError, raised after the lines before them were given
    """
    first = 1
    for raw in raw_windows:
        window = Window(first, [])
        for number, line in enumerate((decode_line(one, number == 1) for number, one in enumerate(raw, first)), first):
            if line.bad_byte is not None:
                where = f"{place}:{number}:{line.bad_byte}"
                if strict:
                    yield window
                    raise InputError(f"{where}: not UTF-8 (mend the text, or leave --strict out)")
                bad.add(f"{where}: not UTF-8; {line.num_bad} characters replaced by U+FFFD")
            window.lines.append(line.text)
        yield window
        first += len(raw)


def pairs(source: str, target: str, size: int, check: Callable[[], None]) -> Iterator[tuple[list[str], list[str]]]:
    """Two texts side by side, at most `size` lines at once; one of them may be stdin, "-", and is read as it comes.

    check: called while waiting; may raise to stop
    Raises InputError where they are not UTF-8 or not of one length.
    """
    live, beside = (target, source) if target == STDIN else (source, target)
    others, first = raw_lines(Path(beside)), 1
    with open_source(live) as stream:
        for window in windows(stream, growing(size), UNCUT, check):
            translations = list(islice(others, len(window)))
            if len(translations) < len(window):
                raise _longer(live, beside, first + len(translations) - 1)
            read, known = _strict(window, live, first), _strict(translations, beside, first)
            yield (known, read) if target == STDIN else (read, known)
            first += len(window)
    if next(others, None) is not None:
        raise _longer(beside, live, first - 1)


def _longer(longer: str, shorter: str, size: int) -> InputError:
    """Two texts that are not translations line by line; how much longer is not asked: a stream may have no end."""
    told = f"{place_of(longer)} has more lines than {place_of(shorter)}, which has {size:,}"
    return InputError(f"{told}; line i of one must translate line i of the other")


def _strict(raw: list[bytes], name: str, first: int) -> list[str]:
    """Raw lines as text. first: the number of the first of them"""
    lines = [decode_line(one, number == 1) for number, one in enumerate(raw, first)]
    for number, line in enumerate(lines, first):
        if line.bad_byte is not None:
            raise InputError(f"{place_of(name)}:{number}:{line.bad_byte}: not UTF-8 (mend the text)")
    return [line.text for line in lines]
