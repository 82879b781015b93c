"""Test sets of WMT in sgm, NIST's format of mteval: a line for each `<seg>`."""

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
# The only tags that matter: segments, and sets (srcset, refset, tstset), whose end shows that the file is whole.
TAG: Final = re.compile(rb"</?(?:seg|[a-z]+set)\b[^<>]*>", re.IGNORECASE)
TAG_IN_SEGMENT: Final = re.compile(rb"</seg\s*>|<seg\b[^<>]*>", re.IGNORECASE)
ENTITY: Final = re.compile(rb"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7})|#[xX]([0-9a-fA-F]{1,6}));")
NAMED_ENTITIES: Final = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}
MAX_SEGMENT_BYTES: Final = 1 << 20  # the longest of WMT's are some thousand


@register("storage", "sgm", NoOptions)
class SgmStorage(Storage):
    """Segments of sgm files, recognised by their names."""

    endings = (".sgm",)

    def text_of(self, content: Stream, path: Path) -> Stream:
        if not SGM_NAME.search(path.name):
            return content
        segments = _segments(lines_within(content, path), path)
        return Stream(ChunkReader(segments), content.place, content.disk)


def _segments(lines: Iterable[bytes], path: Path) -> Iterator[bytes]:
    """The text of each segment in order, as one line with LF; a segment without text is an empty line.

    Entities are decoded once. The lines of a segment are joined by spaces. Text outside of segments is skipped.
    Raises InputError with FILE:LINE for nested segments, an end without a beginning, and a file that is cut.
    """
    parts: list[bytes] | None = None  # the lines of the open segment
    in_set, num_segments, number = False, 0, 0
    first_line, size = 0, 0  # of the open segment, size in bytes
    for number, line in enumerate(lines, 1):
        start = 0
        while True:
            tag = (TAG if parts is None else TAG_IN_SEGMENT).search(line, start)
            if parts is not None:
                parts.append(line[start : tag.start() if tag else None].strip())
                size += len(parts[-1])
                if size > MAX_SEGMENT_BYTES:
                    raise _malformed(path, first_line, f"a segment of more than {MAX_SEGMENT_BYTES:,} bytes")
            if tag is None:
                break
            start, is_end = tag.end(), tag[0].startswith(b"</")
            if not tag[0].lower().startswith((b"<seg", b"</seg")):
                in_set = not is_end
            elif is_end == (parts is None):
                problem = "</seg> without <seg>" if is_end else f"<seg> in that of line {first_line}"
                raise _malformed(path, number, problem)
            elif parts is None:
                parts, first_line, size = [], number, 0
            else:
                yield _decode_entities(b" ".join(filter(None, parts)), path, number) + b"\n"
                parts, num_segments = None, num_segments + 1
    if parts is not None or in_set:
        line_number = number if parts is None else first_line
        raise _malformed(path, line_number, "the file ends before </seg> or the set's end")
    if not num_segments:
        raise _malformed(path, max(number, 1), "no <seg> in the file")


def _malformed(path: Path, number: int, problem: str) -> InputError:
    return InputError(f"{quoted(path)}:{number}: not sgm: {problem}")


def _decode_entities(segment: bytes, path: Path, number: int) -> bytes:
    """A segment with XML's entities decoded; other text that looks like an entity stays."""

    def decoded(entity: re.Match[bytes]) -> bytes:
        name, decimal, hexadecimal = entity.groups()
        if name:
            return NAMED_ENTITIES[name]
        code = int(decimal) if decimal else int(hexadecimal, 16)
        if not code or code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise _malformed(path, number, f"{entity.group().decode()} is no character")
        return b" " if code == ord("\n") else chr(code).encode()  # a segment stays one line

    return ENTITY.sub(decoded, segment)
