"""Reads files and unpacks gzip, bzip2, xz and zstd, recognised by their first bytes. Detects damage and decompression bombs."""

import bz2
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from nmt.errors import ArtefactError, InputError, naming, quoted
from nmt.installation import required

READ_BYTES: Final = 1 << 14  # small, so that `num_read` stays close to the actual position
MAX_MAGIC_BYTES: Final = 10
MAX_EXPANSION: Final = 250  # maximum unpacked bytes per byte on disk: text has 3 to 10, a gzip file of zeros 1,032
FREE_BYTES: Final = 64 << 20  # bytes that any file may unpack to, because a small repetitive file is not an attack
MAX_XZ_MEMORY_BYTES: Final = 256 << 20  # `xz -9` needs 65 MiB


class MeteredFile(io.FileIO):
    """A file on disk that counts the bytes read from it, and the bytes unpacked from them."""

    num_read = num_unpacked = 0

    def readinto(self, buffer: "bytearray | memoryview") -> int | None:  # type: ignore[override]
        with naming(self.name):
            count = super().readinto(buffer)
        self.num_read += count or 0
        return count

    def close(self) -> None:
        with naming(self.name):
            super().close()

    def add_unpacked(self, count: int) -> None:
        """Count unpacked bytes. Raises ArtefactError if the file expands more than any real text would."""
        self.num_unpacked += count
        if self.num_unpacked > FREE_BYTES + MAX_EXPANSION * self.num_read:
            raise ArtefactError(
                f"{quoted(self.name)} expands to more than {MAX_EXPANSION} times its size, which no text does "
                "(if you trust the file, unpack it yourself)"
            )


class ChunkReader(io.RawIOBase):
    """A stream over non-empty chunks of bytes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        self._rest = self._rest or next(self._chunks, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


class Stream(io.BufferedReader):
    """The bytes of a file on disk, or bytes decompressed or extracted from it. place: its name, for errors"""

    def __init__(self, raw: io.RawIOBase, place: str, disk: MeteredFile) -> None:
        super().__init__(raw, READ_BYTES)
        self.place, self.disk = place, disk

    def damaged(self, kind: str, error: object, member: str = "") -> InputError:
        """The error for a damaged stream, or a damaged member of this archive. kind: "gzip", "tar"; error: what is wrong"""
        place = f"{self.place}/{member}" if member else self.place
        return InputError(f"{quoted(place)}: damaged {kind}: {error}")


class _GzipDecompressor:
    """zlib's gzip decompressor, which checks the CRC, with the same interface as those of bz2 and lzma."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


def _zstd() -> Any:
    """The standard library's zstd module, or its backport. Raises UserError if the backport is not installed."""
    return required("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd", "reading zstd", "zstd")


COMPRESSED_ENDINGS: Final = (".gz", ".xz", ".bz2", ".zst")  # file name endings; the content decides the format
Decompressor = _GzipDecompressor | bz2.BZ2Decompressor | lzma.LZMADecompressor
FORMATS: Final[dict[str, tuple[re.Pattern[bytes], Callable[[], Decompressor]]]] = {
    "gzip": (re.compile(b"\x1f\x8b"), _GzipDecompressor),
    "bzip2": (re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), bz2.BZ2Decompressor),
    "xz": (re.compile(b"\xfd7zXZ\0"), partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, MAX_XZ_MEMORY_BYTES)),
    # Also matches a skippable frame, which pzstd files start with. By default a frame can use up to 128 MiB of memory.
    "zstd": (re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), lambda: _zstd().ZstdDecompressor()),
}


def compression_of(start: bytes) -> str:
    """The compression format, recognised by the first bytes; empty if there is none."""
    return next((format for format, (magic, _) in FORMATS.items() if magic.match(start)), "")


def _decompressed_chunks(compressed: Stream, format: str) -> Iterator[bytes]:
    """The content of a compressed file, which consists of one or more streams.

    Unlike the standard library's readers, this one reports a damaged second stream of bzip2 or xz.
    """
    magic, new_decompressor = FORMATS[format]
    decompressor = new_decompressor()
    zstd_errors = (_zstd().ZstdError,) if format == "zstd" else ()
    while True:
        data, at_end = b"", False
        if decompressor.eof:
            data = decompressor.unused_data.lstrip(b"\0")  # zeros between and after streams are padding
            while len(data) < MAX_MAGIC_BYTES and (more := compressed.read(READ_BYTES)):
                data = (data + more).lstrip(b"\0")
            if not data:
                return
            if not magic.match(data):
                raise compressed.damaged(format, "its end is followed by other data")
            decompressor = new_decompressor()
        elif decompressor.needs_input:
            data = compressed.read(READ_BYTES)
            at_end = not data
        try:
            content = decompressor.decompress(data, READ_BYTES)
        except (zlib.error, lzma.LZMAError, OSError, EOFError, *zstd_errors) as error:
            raise compressed.damaged(format, error) from None
        if content:
            compressed.disk.add_unpacked(len(content))
            yield content
        elif at_end and not decompressor.eof:
            raise compressed.damaged(format, "unexpected end of file")


def decompressed(stream: Stream) -> Stream:
    """The content of a compressed stream; any other is returned unchanged, unless its name says it is compressed."""
    if format := compression_of(stream.peek(MAX_MAGIC_BYTES)):
        return Stream(ChunkReader(_decompressed_chunks(stream, format)), stream.place, stream.disk)
    if stream.place.lower().endswith(COMPRESSED_ENDINGS):
        raise stream.damaged("file", "its name says that it is compressed, but it is not (rename it, or get it again)")
    return stream


def open_stored(path: Path) -> Stream:
    """Open a file without decompressing it."""
    disk = MeteredFile(path)
    return Stream(disk, str(path), disk)


@contextmanager
def open_decompressed(path: Path) -> Iterator[Stream]:
    """Open the content of a file, decompressing it if it is compressed."""
    with open_stored(path) as stored:
        yield decompressed(stored)
