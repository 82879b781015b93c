"""Lines of text files as every command reads them: bytes that end at LF and nowhere else (docs/contract.md).

A text is a plain file, a compressed file, an sgm file, or any of these in an archive.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from nmt.errors import InputError, quoted
from nmt.text.archive import open_file
from nmt.text.compression import COMPRESSED_NAME, stream_of
from nmt.text.sgm import is_sgm, segments

BOM: Final = b"\xef\xbb\xbf"
COUNT_BLOCK_BYTES: Final = 1 << 20
STORAGE_ENDINGS: Final = re.compile(rf"(\.sgm)?{COMPRESSED_NAME}", re.IGNORECASE)
NOT_TEXT: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # categories Cc, Zl and Zp


def clean(text: str) -> str:
    """One line: each control character, line separator and paragraph separator becomes a space."""
    return NOT_TEXT.sub(" ", text)


class Line(NamedTuple):
    """A line of a file.

    text: the cleaned text, with U+FFFD for bytes that are not UTF-8
    bad_byte: position of the first byte that is not UTF-8, counted from 1; None if there is none
    num_bad: number of U+FFFD that stand for such bytes
    """

    text: str
    bad_byte: int | None = None
    num_bad: int = 0


def decode_line(raw: bytes, first: bool = False) -> Line:
    """A raw line, with or without its LF, as text. first: whether it is the first line, which may begin with a BOM"""
    raw = raw.removesuffix(b"\n").removesuffix(b"\r") if raw.endswith(b"\n") else raw
    start = len(BOM) if first and raw.startswith(BOM) else 0
    try:
        return Line(clean(raw[start:].decode()))
    except UnicodeDecodeError as error:
        text = raw[start:].decode(errors="replace")
        num_bad = text.count("\ufffd") - raw.count("\ufffd".encode())
        return Line(clean(text), start + error.start + 1, num_bad)


@contextmanager
def open_text(path: Path) -> Iterator[BinaryIO]:
    """The lines of a text as bytes, decompressed; an sgm file, recognised by its name, has a line for each segment.

    Opening and reading raise UserError for a missing file or member, InputError for a damaged one, ArtefactError for
    a hostile archive.
    """
    with open_file(path) as file:
        yield cast(BinaryIO, stream_of(segments(file, path))) if is_sgm(path) else file


def raw_lines(path: Path) -> Iterator[bytes]:
    """The lines of a text as bytes, each with its LF, which the last may lack. Raises the errors of open_text."""
    with open_text(path) as file:
        yield from file


def bad_bytes(path: Path, number: int, line: Line) -> InputError:
    """The error for a line that is not UTF-8. number: of the line, counted from 1"""
    return InputError(
        f"{quoted(path)}:{number}:{line.bad_byte}: not UTF-8 (mend the file; nmt prepare has --on-bad-line skip and replace)"
    )


def checked_line(path: Path, number: int, raw: bytes) -> str:
    """The cleaned text of line `number`, counted from 1; InputError with FILE:LINE:BYTE for bytes that are not UTF-8."""
    line = decode_line(raw, number == 1)
    if line.bad_byte is not None:
        raise bad_bytes(path, number, line)
    return line.text


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a text. Raises the errors of open_text and checked_line."""
    for number, raw in enumerate(raw_lines(path), 1):
        yield checked_line(path, number, raw)


def read_lines(path: Path) -> list[str]:
    """All lines of a text. Raises the errors of text_lines."""
    return list(text_lines(path))


def misaligned(source: Path, target: Path, source_lines: int, target_lines: int) -> InputError:
    """The error for two files with different numbers of lines."""
    return InputError(
        f"{quoted(source)} has {source_lines:,} lines, {quoted(target)} has {target_lines:,}; line i of one must translate "
        "line i of the other"
    )


def count_lines(path: Path, check: Callable[[], None] = lambda: None) -> int:
    """The number of lines of a text, without decoding them. check: called after each MiB; may raise to stop"""
    count, block = 0, b"\n"
    with open_text(path) as file:
        while more := file.read(COUNT_BLOCK_BYTES):
            block = more
            count += block.count(b"\n")
            check()
    return count + (not block.endswith(b"\n"))


def text_name(path: Path) -> str:
    """The name of a text without the endings of its storage: `dev.en` for `dev.en.sgm.gz`."""
    return STORAGE_ENDINGS.sub("", path.name)
