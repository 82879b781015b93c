"""Translates a stream line by line, as long as somebody reads the translations."""

import contextlib
import errno
import io
import os
import select
import stat
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, BinaryIO, Final

from nmt import signals
from nmt.errors import InputError, naming
from nmt.log import Bar, log
from nmt.text.context import DocumentLines
from nmt.text.corpus import bad_bytes, decode_line
from nmt.translate.line_warnings import NOT_UTF8, LineWarnings
from nmt.translate.requests import MAX_LINE_BYTES, Form, Request, in_context, read_request
from nmt.translate.results import Translation
from nmt.translate.translator import Translator
from nmt.translate.windows import Source, growing, windows

if TYPE_CHECKING:  # needed only with several devices
    from nmt.translate.distributed import SharedTranslator

MAX_CHARACTER_BYTES: Final = 4  # maximum bytes of a character in UTF-8


class TranslationOutput:
    """The output of translations: a file, or a pipe that its reader may close.

    is_awaited: whether a reader may be waiting for the next line; False for a file
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._poll = select.poll()
        self.is_awaited = True
        with contextlib.suppress(io.UnsupportedOperation):  # a file without a descriptor
            self._poll.register(file.fileno(), 0)  # errors and hang-ups are always reported
            self.is_awaited = not stat.S_ISREG(os.fstat(file.fileno()).st_mode)

    def write(self, lines: str) -> None:
        """Write and flush. Raises OSError with the stream's name (`nmt.files.new_output` adds its own path)."""
        name = getattr(self._file, "name", "output")
        with naming(name.strip("<>")) if isinstance(name, str) else contextlib.nullcontext():
            self._file.write(lines.encode())
            self._file.flush()

    def check(self) -> None:
        """Raise BrokenPipeError if the reader has closed the pipe, because then nobody needs further translations."""
        if any(events & (select.POLLERR | select.POLLHUP) for _, events in self._poll.poll(0)):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def translate_stream(
    translator: "Translator | SharedTranslator",
    source: Source,
    output: BinaryIO,
    form: Form,
    show: Callable[[int, Request, Translation], str],
    max_lines: int,
    warnings: LineWarnings,
    strict: bool,
    bar: Bar,
    first_number: int = 0,
) -> int:
    """Translate every line of source to output, window by window, until the end or a signal (Interrupted).

    form: the form of a line, see `read_request`
    show: (number of the line, request, translation) -> output lines, each with its LF
    max_lines: lines per window, which is sorted by length; the first windows are smaller if a reader waits
    warnings: receives the warnings about lines
    strict: whether bytes that are not UTF-8 raise InputError
    bar: counts the lines
    first_number: number of the first line, for `show`
    returns: the number of the first line of a text that would follow this one
    """
    results, document = TranslationOutput(output), DocumentLines(translator.context)
    sizes = growing(max_lines) if results.is_awaited else repeat(max_lines)
    max_bytes = MAX_CHARACTER_BYTES * (translator.max_characters + 1)  # more than the translator reads
    if form != "text":
        max_bytes = max(max_bytes, MAX_LINE_BYTES)  # constraints at the end of a line must not be truncated
    with signals.Signals(also=results.check):

        def idle() -> None:
            signals.check()
            translator.idle()

        for first, lines in _decoded(windows(source, sizes, max_bytes, idle), warnings, strict):
            requests = in_context([read_request(line, form) for line in lines], document)
            translations = translator.translate(requests, bar)
            warnings.add_translations(translations, first)
            rows = zip(requests, translations, strict=True)
            shown = "".join(show(number, *row) for number, row in enumerate(rows, first_number))
            with log.hidden_bars(output):
                results.write(shown)
            first_number += len(lines)
            signals.check()
    return first_number


def _decoded(
    raw_windows: Iterator[list[bytes]], warnings: LineWarnings, strict: bool
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line of each window, from 1, and its lines as text. Bad bytes are replaced, with a warning.

    strict: raise InputError for bad bytes instead, after yielding the previous lines
    """
    first = 1
    for raw in raw_windows:
        lines: list[str] = []
        for number, raw_line in enumerate(raw, first):
            line = decode_line(raw_line, number == 1)
            if line.bad_byte is not None:
                position = f"{number}:{line.bad_byte}"
                if line.wide_encoding:
                    raise bad_bytes(warnings.place, number, line)
                if strict:
                    yield first, lines
                    raise InputError(f"{warnings.place}:{position}: not UTF-8 (fix the text, or drop --strict)")
                warnings.add(NOT_UTF8, position, f"not UTF-8; {line.num_bad} bad bytes replaced by U+FFFD")
            lines.append(line.text)
        yield first, lines
        first += len(raw)
