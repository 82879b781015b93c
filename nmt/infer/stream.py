"""Lines that come when they come: read in windows, so that a typed line is answered at once and a large file in bulk."""

import contextlib
import gzip
import os
import select
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from nmt.artefact import storage_error
from nmt.errors import InputError, UserError, quoted
from nmt.infer.candidates import Translation
from nmt.infer.requests import Form, Request, read_request
from nmt.infer.translator import Tally
from nmt.log import log
from nmt.signals import Signals
from nmt.text.corpus import GZIP_MAGIC, decode_line, open_text

CHUNK: Final = 1 << 16  # bytes
LOOK_AT_SIGNALS: Final = 0.2  # seconds
GRACE: Final = 0.02  # seconds that a window waits for the next line
MOST_BYTES: Final = 1 << 22  # of a line that holds more than a text
PATIENCE: Final = 0.2  # seconds after which it no longer waits: lines that trickle in are answered too


class Source(Protocol):
    """Where bytes come from."""

    def waiting(self, seconds: float) -> bool:
        """Whether bytes, or the end, can be read now or within `seconds`."""

    def read(self) -> bytes:
        """Some bytes; none at the end."""


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
            raise InputError("the text is gzip, which is read from files only (name it with --input, or gunzip it)")
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


@contextlib.contextmanager
def open_source(name: str) -> Iterator[Source]:
    """A file or pipe by name; "-" is stdin. Raises UserError when it is not there."""
    path = Path(name)
    if name == "-":
        if sys.stdin is None:
            raise UserError("stdin is closed (give it text, or name a file with --input)")
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
        self._any = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk, each with its LF."""
        head, *rest = chunk.split(b"\n")
        self._extend(head)
        lines = []
        for part in rest:
            lines.append(self._close() + b"\n")
            self._extend(part)
        return lines

    def end(self) -> list[bytes]:
        """The last line, if it lacks its LF."""
        return [self._close()] if self._any else []

    def _extend(self, part: bytes) -> None:
        self._any = self._any or bool(part)
        self._open += part[: max(0, self._longest + 1 - len(self._open))]

    def _close(self) -> bytes:
        line = bytes(self._open)
        self._open.clear()
        self._any = False
        if len(line) <= self._longest:
            return line
        end = self._longest
        while end > 0 and line[end] & 0xC0 == 0x80:  # not in the middle of a character
            end -= 1
        return line[:end]


def windows(source: Source, size: int, longest: int, check: Callable[[], None]) -> Iterator[list[bytes]]:
    """Raw lines in lists of at most `size`, each given as soon as no further line is waiting.

    longest: bytes of a line that are kept
    check: called while waiting; may raise to stop
    """
    splitter = _Splitter(longest)
    lines: list[bytes] = []
    started = 0.0
    while True:
        while not source.waiting(LOOK_AT_SIGNALS):
            check()
        if not lines:
            started = time.monotonic()
        chunk = source.read()
        lines += splitter.feed(chunk) if chunk else splitter.end()
        full = len(lines) - len(lines) % size
        for i in range(0, full, size):
            yield lines[i : i + size]
        lines = lines[full:]
        patience = GRACE if time.monotonic() - started < PATIENCE else 0.0
        if lines and (not chunk or not source.waiting(patience)):
            yield lines
            lines = []
        if not chunk:
            return


@dataclass(frozen=True)
class Window:
    """Lines as text. first: the number of the first of them in the input, counted from 1."""

    first: int
    lines: list[str]


def texts(raw_windows: Iterator[list[bytes]], place: str, strict: bool, bad: Tally) -> Iterator[Window]:
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


@contextlib.contextmanager
def new_output(path: Path) -> Iterator[BinaryIO]:
    """A file to write results to, which gets its name when the block ends without an error; a device is written directly."""
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise storage_error(error, path) from error
        raise


def translate_stream(
    translator: Translating,
    source: Source,
    output: BinaryIO,
    form: Form,
    show: Callable[[int, Request, Translation], str],
    buffer_size: int,
    place: str,
    strict: bool,
) -> int:
    """Translate every line of source to output, window by window, until the end or a signal (Interrupted).

    form: what stands on a line
    show: (number of the line from 0, what it asks for, its translation) -> one or more lines, each with its LF
    returns: how many lines had bytes that are not UTF-8
    """
    bad = Tally(log.warn)
    with Signals() as signals:

        def waiting() -> None:
            signals.check()
            translator.wait()

        longest = 4 * translator.max_characters + 4  # bytes: cut here only what the translator cuts as well
        if form != "text":
            longest = max(longest, MOST_BYTES)  # what else stands on a line is not for us to cut
        for window in texts(windows(source, buffer_size, longest, waiting), place, strict, bad):
            requests = [read_request(line, form) for line in window.lines]
            translations = translator.translate(requests, place, window.first, signals.check)
            pairs = zip(requests, translations, strict=True)
            shown = "".join(show(number, *pair) for number, pair in enumerate(pairs, window.first - 1))
            output.write(shown.encode())
            output.flush()
            signals.check()
    return bad.count
