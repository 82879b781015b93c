"""Lines of text files, as every command reads them: only LF ends a line (docs/reference/contract.md).

A text is a plain or compressed file, or anything else that a storage can open (nmt.storages.base).
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from nmt import signals
from nmt.errors import InputError, quoted
from nmt.storages.base import open_text, storages
from nmt.storages.streams import COMPRESSED_ENDINGS, Stream

BOM: Final = b"\xef\xbb\xbf"
# Wide encodings: byte order marks, bytes per character, and the minimum share of NUL bytes in a line of Latin letters.
WIDE_ENCODINGS: Final = (
    ("UTF-32", (b"\xff\xfe\0\0", b"\0\0\xfe\xff"), 4, 0.7),
    ("UTF-16", (b"\xff\xfe", b"\xfe\xff"), 2, 0.4),
)
COUNT_BLOCK_BYTES: Final = 1 << 20
COMPRESSED_NAME: Final = rf"({'|'.join(map(re.escape, COMPRESSED_ENDINGS))})?$"  # optional compression suffix of a name
NOT_TEXT: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # categories Cc, Zl and Zp
MAX_RAW_LINE_BYTES: Final = 1 << 24  # maximum size of a line; processing it takes ten times as much memory
# Zero-width characters: soft hyphen, joiners, fillers, direction marks, variation selectors, tags.
NO_WIDTH: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
is_invisible: Final = re.compile(f"[\\s{NO_WIDTH}]*").fullmatch

# Text whose letters are not words: addresses, list markers such as `b)`, and temperatures such as `30 °C`.
_IS_NAME: Final = re.compile(
    r"(?:\s*(?:\w+://\S+|www\.\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+))+\s*|\s*\(?(?:[^\W\d_]|[ivxIVX]{2,5})[.)]\s*|"
    r"(?:[\W\d]*°\s?[CF])+\W*"
).fullmatch


def is_translatable(text: str) -> bool:
    """Whether a text contains letters other than those in addresses, list markers and temperatures (_IS_NAME)."""
    return any(map(str.isalpha, text)) and not _IS_NAME(text)


def clean(text: str) -> str:
    """Make a text one line: each control character, line separator and paragraph separator becomes a space."""
    return NOT_TEXT.sub(" ", text)


def visible_line(text: str) -> str:
    """Clean a text (see `clean`); the result is empty if nothing in it is visible."""
    return "" if is_invisible(text) else clean(text)


class Line(NamedTuple):
    """A line of a file.

    text: cleaned text, with U+FFFD in place of bytes that are not UTF-8
    bad_byte: position of the first byte that is not UTF-8, counted from 1; None if all bytes are valid
    num_bad: number of U+FFFD that replace invalid bytes
    wide_encoding: UTF-16 or UTF-32 if the line is the first of a text in that encoding; bad_byte is then not None
    """

    text: str
    bad_byte: int | None = None
    num_bad: int = 0
    wide_encoding: str | None = None


def decode_line(raw: bytes, first: bool = False) -> Line:
    """Decode a raw line, with or without its LF. first: whether it is the first line, which may start with a BOM"""
    raw = raw.removesuffix(b"\n").removesuffix(b"\r") if raw.endswith(b"\n") else raw
    wide_encoding = _wide_encoding(raw) if first else None
    start = len(BOM) if first and raw.startswith(BOM) else 0
    try:
        text = clean(raw[start:].decode())
        return Line(text, raw.index(0) + 1, 1, wide_encoding) if wide_encoding else Line(text)
    except UnicodeDecodeError as error:
        text = raw[start:].decode(errors="replace")
        num_bad = text.count("\ufffd") - raw.count("\ufffd".encode())
        return Line(clean(text), start + error.start + 1, num_bad, wide_encoding)


def _wide_encoding(raw: bytes) -> str | None:
    for name, marks, width, share in WIDE_ENCODINGS:
        if raw.startswith(marks) or (len(raw) >= width - 1 and raw.count(0) > share * len(raw)):
            return name
    return None


def raw_lines(path: Path) -> Iterator[bytes]:
    """Read the lines of a text as bytes, each with its LF; the last line may lack it.

    Raises the errors of open_text, and InputError for a line of more than MAX_RAW_LINE_BYTES.
    """
    with open_text(path) as file:
        yield from lines_within(file, path)


def lines_within(file: Stream, path: Path) -> Iterator[bytes]:
    """Read the lines of an open text. Raises InputError for a line of more than MAX_RAW_LINE_BYTES."""
    for number, line in enumerate(iter(partial(file.readline, MAX_RAW_LINE_BYTES + 1), b""), 1):
        if len(line) > MAX_RAW_LINE_BYTES:
            raise InputError(
                f"{quoted(path)}:{number}: the line exceeds {MAX_RAW_LINE_BYTES >> 20} MiB (add line breaks)"
            )
        yield line


def bad_bytes(place: str, number: int, line: Line) -> InputError:
    """The error for a line that is not UTF-8. place: quoted name of the text; number: line number, counted from 1"""
    position = f"{place}:{number}:{line.bad_byte}"
    if name := line.wide_encoding:
        return InputError(f"{position}: {name}, not UTF-8 (convert the file: `iconv -f {name.lower()} -t utf-8`)")
    return InputError(f"{position}: not UTF-8 (fix the file: `iconv -c -f utf-8 -t utf-8` drops invalid bytes)")


def checked_line(path: object, number: int, raw: bytes) -> str:
    """Decode and clean line `number`, counted from 1. Raises InputError with FILE:LINE:BYTE for bytes that are not UTF-8."""
    line = decode_line(raw, number == 1)
    if line.bad_byte is not None:
        raise bad_bytes(quoted(path), number, line)
    return line.text


def text_lines(path: Path) -> Iterator[str]:
    """Read the lines of a text. Raises the errors of open_text and checked_line."""
    for number, raw in enumerate(raw_lines(path), 1):
        yield checked_line(path, number, raw)


def read_lines(path: Path) -> list[str]:
    """Read all lines of a text into a list. Raises the errors of text_lines."""
    return list(text_lines(path))


def misaligned(source: Path, target: Path, source_lines: int, target_lines: int) -> InputError:
    """The error for two files with different numbers of lines."""
    return InputError(
        f"{quoted(source)} has {source_lines:,} lines, but {quoted(target)} has {target_lines:,} (line N of one file must "
        "translate line N of the other)"
    )


def count_lines(path: Path) -> int:
    """Count the lines of a text without decoding them. An archive is read to its end."""
    count, block = 0, b"\n"
    with open_text(path, whole=True) as file:
        while more := file.read(COUNT_BLOCK_BYTES):
            block = more
            count += block.count(b"\n")
            signals.check()
    return count + (not block.endswith(b"\n"))


def text_name(path: Path) -> str:
    """The name of a text without endings such as `.gz` or `.tar`: `dev.en` for `dev.en.gz`."""
    storage = "|".join(re.escape(ending) for storage in storages() for ending in storage.endings)
    return re.sub(rf"({storage})?{COMPRESSED_NAME}", "", path.name, flags=re.IGNORECASE)
