"""WMT test sets in sgm, the format of NIST's mteval. Each `<seg>` becomes one line."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from nmt import register
from nmt.errors import InputError, quoted
from nmt.options import NoOptions
from nmt.storages.base import Storage
from nmt.storages.streams import ChunkReader, Stream
from nmt.text.corpus import COMPRESSED_NAME, lines_within

SGM_NAME: Final = re.compile(rf"\.sgm{COMPRESSED_NAME}", re.IGNORECASE)
# The only tags that matter: segments, and sets (srcset, refset, tstset). The end tag of a set shows that the file is complete.
TAG: Final = re.compile(rb"</?(?:seg|[a-z]+set)\b[^<>]*>", re.IGNORECASE)
TAG_IN_SEGMENT: Final = re.compile(rb"</seg\s*>|<seg\b[^<>]*>", re.IGNORECASE)
ENTITY: Final = re.compile(rb"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7})|#[xX]([0-9a-fA-F]{1,6}));")
NAMED_ENTITIES: Final = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}
MAX_SEGMENT_BYTES: Final = 1 << 20  # the longest WMT segments have a few thousand bytes


@register("storage", "sgm", NoOptions)
class SgmStorage(Storage):
    """Reads the segments of sgm files, which are recognised by their names."""

    endings = (".sgm",)

    def text_of(self, content: Stream, path: Path) -> Stream:
        if not SGM_NAME.search(path.name):
            return content
        segments = _segments(lines_within(content, path), path)
        return Stream(ChunkReader(segments), content.place, content.disk)


def _segments(lines: Iterable[bytes], path: Path) -> Iterator[bytes]:
    """The text of each segment in order, as one line that ends with LF. An empty segment gives an empty line.

    Entities are decoded once. The lines of a segment are joined with spaces. Text outside segments is skipped.
    Raises InputError with FILE:LINE for nested segments, an end tag without a start tag, and a truncated file.
    """
    parts: list[bytes] | None = None  # the lines of the open segment
    in_set, num_segments, number = False, 0, 0
    first_line, size = 0, 0  # first line and size in bytes of the open segment
    for number, line in enumerate(lines, 1):
        start = 0
        while True:
            tag = (TAG if parts is None else TAG_IN_SEGMENT).search(line, start)
            if parts is not None:
                parts.append(line[start : tag.start() if tag else None].strip())
                size += len(parts[-1])
                if size > MAX_SEGMENT_BYTES:
                    raise _malformed(path, first_line, f"a segment has more than {MAX_SEGMENT_BYTES:,} bytes")
            if tag is None:
                break
            start, is_end = tag.end(), tag[0].startswith(b"</")
            if not tag[0].lower().startswith((b"<seg", b"</seg")):
                in_set = not is_end
            elif is_end == (parts is None):
                problem = (
                    "</seg> without <seg>" if is_end else f"<seg> inside the segment that starts on line {first_line}"
                )
                raise _malformed(path, number, problem)
            elif parts is None:
                parts, first_line, size = [], number, 0
            else:
                yield _decode_entities(b" ".join(filter(None, parts)), path, number) + b"\n"
                parts, num_segments = None, num_segments + 1
    if parts is not None or in_set:
        line_number = number if parts is None else first_line
        raise _malformed(path, line_number, "the file ends before </seg> or the end of the set")
    if not num_segments:
        raise _malformed(path, max(number, 1), "the file contains no <seg>")


def _malformed(path: Path, number: int, problem: str) -> InputError:
    return InputError(f"{quoted(path)}:{number}: not valid sgm: {problem}")


def _decode_entities(segment: bytes, path: Path, number: int) -> bytes:
    """Decode the XML entities of a segment. Other text that looks like an entity stays unchanged."""

    def decoded(entity: re.Match[bytes]) -> bytes:
        name, decimal, hexadecimal = entity.groups()
        if name:
            return NAMED_ENTITIES[name]
        code = int(decimal) if decimal else int(hexadecimal, 16)
        if not code or code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise _malformed(path, number, f"{entity.group().decode()} is not a character")
        return b" " if code == ord("\n") else chr(code).encode()  # a segment must stay on one line

    return ENTITY.sub(decoded, segment)
