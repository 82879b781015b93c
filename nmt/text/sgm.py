"""The test sets of WMT as they are published: sgm, one `<seg>` a line of text (NIST's format of mteval)."""

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from nmt.errors import InputError, quoted
from nmt.text.packed import PACKED_NAME

# Of all tags only these say something: sets, so that a cut file is known, and segments. srcset, refset, tstset.
TAG: Final = re.compile(rb"<(/?)(seg|[a-z]+set)\b[^<>]*>", re.IGNORECASE)
END_OF_SEGMENT: Final = re.compile(rb"</seg\s*>|<seg\b[^<>]*>", re.IGNORECASE)
ENTITY: Final = re.compile(rb"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7})|#[xX]([0-9a-fA-F]{1,6}));")
NAMED: Final = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}
LONGEST: Final = 1 << 20  # bytes of a segment; the longest of WMT's are some thousand


def is_sgm(path: Path) -> bool:
    """Whether a file is sgm by its name."""
    return re.search(rf"\.sgm{PACKED_NAME}", path.name, re.IGNORECASE) is not None


def segments(lines: Iterable[bytes], path: Path) -> Iterator[bytes]:
    """The text of each segment, in order, with its LF and without LF inside; one without text is an empty line.

    Entities are undone, once. Lines of a segment are joined by spaces. What stands outside of segments is no text.
    Raises InputError with FILE:LINE for a segment in a segment, an end without a beginning, and a file that is cut.
    """
    parts: list[bytes] | None = None  # of the segment that is open
    in_set, opened, count, number, size = False, 0, 0, 0, 0
    for number, line in enumerate(lines, 1):
        at = 0
        while True:
            tag = (TAG if parts is None else END_OF_SEGMENT).search(line, at)
            if parts is not None:
                parts.append(line[at : tag.start() if tag else None].strip())
                size += len(parts[-1])
                if size > LONGEST:
                    raise _malformed(path, opened, f"a segment of more than {LONGEST:,} bytes")
            if tag is None:
                break
            at = tag.end()
            closes, is_segment = (
                line[tag.start() + 1] == ord("/"),
                line[tag.start() :].lower().startswith((b"<seg", b"</seg")),
            )
            if not is_segment:
                in_set = not closes
            elif closes == (parts is None):
                raise _malformed(path, number, "</seg> without <seg>" if closes else f"<seg> in that of line {opened}")
            elif parts is None:
                parts, opened, size = [], number, 0
            else:
                yield _text(b" ".join(filter(None, parts)), path, number) + b"\n"
                parts, count = None, count + 1
    if parts is not None or in_set:
        raise _malformed(path, opened if parts is not None else number, "the file ends before </seg> or the set's end")
    if not count:
        raise _malformed(path, max(number, 1), "no <seg> in the file")


def _malformed(path: Path, number: int, what: str) -> InputError:
    return InputError(f"{quoted(path)}:{number}: not sgm: {what}")


def _text(segment: bytes, path: Path, number: int) -> bytes:
    """A segment with its entities undone; one that is none of XML's stays as it is written."""

    def undone(entity: re.Match[bytes]) -> bytes:
        name, decimal, hexadecimal = entity.groups()
        if name:
            return NAMED[name]
        code = int(decimal) if decimal else int(hexadecimal, 16)
        if not code or code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise _malformed(path, number, f"{entity.group().decode()} is no character")
        return b" " if code == ord("\n") else chr(code).encode()  # a segment stays one line

    return ENTITY.sub(undone, segment)


class SegmentReader(io.RawIOBase):
    """The segments of a file of sgm as a stream of lines."""

    def __init__(self, file: Iterable[bytes], path: Path) -> None:
        self._segments = segments(file, path)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        self._rest = self._rest or next(self._segments, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
