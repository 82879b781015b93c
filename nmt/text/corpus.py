"""Lines of text files as every command reads them: bytes cut at LF and nowhere else (docs/contract.md, rule 4).

A text is a plain file, a compressed one, sgm, or any of these in an archive.
"""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from nmt.errors import InputError, quoted
from nmt.text import archive
from nmt.text.packed import GZIP_MAGIC as GZIP_MAGIC  # a pipe that brings it is told
from nmt.text.packed import PACKED_NAME
from nmt.text.sgm import SegmentReader, is_sgm

BOM: Final = b"\xef\xbb\xbf"
READ_AT_ONCE: Final = 1 << 20
NOT_OF_THE_NAME: Final = re.compile(rf"(\.sgm)?{PACKED_NAME}", re.IGNORECASE)
NOT_TEXT: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # categories Cc, Zl and Zp


def clean(text: str) -> str:
    """text with each control character, line separator and paragraph separator as a space: one line, whatever it was."""
    return NOT_TEXT.sub(" ", text)


class Line(NamedTuple):
    """A line of a file. text: cleaned; bad_byte: the first byte (counted from 1) that is not UTF-8, None if all are.

    num_bad: characters of `text` that stand for bytes which are not UTF-8 (U+FFFD)
    """

    text: str
    bad_byte: int | None = None
    num_bad: int = 0


def decode_line(raw: bytes, first: bool = False) -> Line:
    """A raw line, with or without its LF, as text. first: whether it is the file's first line, which may begin with a BOM."""
    raw = raw.removesuffix(b"\n").removesuffix(b"\r") if raw.endswith(b"\n") else raw
    start = len(BOM) if first and raw.startswith(BOM) else 0
    try:
        return Line(clean(raw[start:].decode()))
    except UnicodeDecodeError as error:
        text = raw[start:].decode(errors="replace")
        num_bad = text.count("\ufffd") - raw.count("\ufffd".encode())
        return Line(clean(text), start + error.start + 1, num_bad)


def text_exists(path: Path) -> bool:
    """Whether there is a file, or a member of an archive, of this name. Raises InputError when the archive is damaged."""
    return archive.exists(path)


@contextmanager
def open_text(path: Path) -> Iterator[BinaryIO]:
    """The lines of a text as bytes: of a file, or of a member of an archive that is named as if it were a folder.

    What is compressed is decompressed, by its first bytes; sgm, by its name, is read as a line a segment. Opening and
    reading raise UserError for what is not there, InputError for what is damaged, ArtefactError for a hostile archive.
    """
    with archive.open_file(path) as file:
        yield cast(BinaryIO, io.BufferedReader(SegmentReader(file, path))) if is_sgm(path) else file


def raw_lines(path: Path) -> Iterator[bytes]:
    """The lines of a text as bytes, each with its LF (the last may lack it). Raises what open_text does."""
    with open_text(path) as file:
        yield from file


def bad_bytes(path: Path, number: int, line: Line) -> InputError:
    """The error for a line that is not UTF-8. number: of the line, counted from 1."""
    return InputError(
        f"{quoted(path)}:{number}:{line.bad_byte}: not UTF-8 (mend the file; nmt prepare has --on-bad-line skip and replace)"
    )


def lines(path: Path) -> Iterator[str]:
    """The lines of a file as text. Raises InputError with FILE:LINE:BYTE where it is not UTF-8."""
    for number, raw in enumerate(raw_lines(path), 1):
        line = decode_line(raw, number == 1)
        if line.bad_byte is not None:
            raise bad_bytes(path, number, line)
        yield line.text


def read_lines(path: Path) -> list[str]:
    """All lines of a file as text."""
    return list(lines(path))


def misaligned(source: Path, target: Path, source_lines: int, target_lines: int) -> InputError:
    """The error for two files that are not translations line by line."""
    return InputError(
        f"{quoted(source)} has {source_lines:,} lines, {quoted(target)} has {target_lines:,}; line i of one must translate "
        "line i of the other"
    )


def count_lines(path: Path, check: Callable[[], None] = lambda: None) -> int:
    """How many lines a text has, without looking at them. check: called now and then; may raise to stop"""
    count, last = 0, b""
    with open_text(path) as file:
        while block := file.read(READ_AT_ONCE):
            count, last = count + block.count(b"\n"), block[-1:]
            check()
    return count + (last not in (b"", b"\n"))


def text_name(path: Path) -> str:
    """The name of a text without what says how it is stored."""
    return NOT_OF_THE_NAME.sub("", path.name)
