"""Decompression of gzip, bzip2 and xz streams, recognised by their first bytes; damage and bombs are errors."""

import bz2
import io
import lzma
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from nmt.errors import ArtefactError, InputError, quoted

GZIP_MAGIC: Final = b"\x1f\x8b"
COMPRESSED_NAME: Final = r"(\.(gz|bz2|xz))?$"  # a pattern: how the name of a text ends that may be compressed
READ_BYTES: Final = 1 << 17
MAX_MAGIC_BYTES: Final = 10
MAX_EXPANSION: Final = 250  # bytes that a byte on disk may unpack to: text gives 3 to 10, zeros in gzip 1,032
FREE_BYTES: Final = 64 << 20  # bytes that may be unpacked at any ratio: a small repetitive file is no attack
MAX_XZ_MEMORY_BYTES: Final = 256 << 20  # `xz -9` needs 65 MiB


class CountingFile(io.FileIO):
    """A file on disk that counts the bytes read from it."""

    num_read = 0

    def __init__(self, path: Path) -> None:
        super().__init__(path)

    def readinto(self, buffer: "bytearray | memoryview") -> int | None:  # type: ignore[override]
        count = super().readinto(buffer)
        self.num_read += count or 0
        return count


@dataclass
class ExpansionLimit:
    """The bytes unpacked so far, compared with the bytes read from disk for them."""

    file: CountingFile
    num_unpacked: int = 0

    def add(self, count: int) -> None:
        """Count unpacked bytes. Raises ArtefactError for a file that expands as no text does."""
        self.num_unpacked += count
        if self.num_unpacked > FREE_BYTES + MAX_EXPANSION * self.file.num_read:
            raise ArtefactError(
                f"{quoted(self.file.name)}: unpacks to more than {MAX_EXPANSION} times its size, as no text does "
                "(if you trust it, unpack it yourself)"
            )


class _GzipDecompressor:
    """zlib's decompressor of gzip, which checks the CRC, with the interface of those of bz2 and lzma."""

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


Decompressor = _GzipDecompressor | bz2.BZ2Decompressor | lzma.LZMADecompressor
FORMATS: Final[dict[str, tuple[re.Pattern[bytes], Callable[[], Decompressor]]]] = {
    "gzip": (re.compile(GZIP_MAGIC), _GzipDecompressor),
    "bzip2": (re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), bz2.BZ2Decompressor),
    "xz": (re.compile(b"\xfd7zXZ\0"), partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, MAX_XZ_MEMORY_BYTES)),
}


class DecompressedReader(io.RawIOBase):
    """The content of a compressed file of one or more streams.

    The standard library's readers end without an error at a damaged second stream of bzip2 and xz; this one does not.
    """

    def __init__(self, compressed: io.BufferedReader, format: str, name: str, limit: ExpansionLimit) -> None:
        self._compressed, self._format, self._name, self._limit = compressed, format, name, limit
        self._magic, self._new_decompressor = FORMATS[format]
        self._decompressor = self._new_decompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        """Fill the buffer, except at the end of the content."""
        filled = 0
        while filled < len(buffer) and (data := self._read_some(len(buffer) - filled)):
            buffer[filled : filled + len(data)] = data
            filled += len(data)
        self._limit.add(filled)
        return filled

    def _read_some(self, max_bytes: int) -> bytes:
        """Some bytes of the content; none at its end."""
        while True:
            data = b""
            if self._decompressor.eof:
                data = self._next_stream()
                if not data:
                    return b""
            elif self._decompressor.needs_input:
                data = self._compressed.read(READ_BYTES)
            try:
                content = self._decompressor.decompress(data, max_bytes)
            except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
                raise damaged(self._name, self._format, error) from None
            if content:
                return content
            if not data and not self._decompressor.eof and self._decompressor.needs_input:
                raise damaged(self._name, self._format, "it is cut")

    def _next_stream(self) -> bytes:
        """The first bytes of the stream after the one that ended; zeros between and after streams are padding."""
        data = self._decompressor.unused_data.lstrip(b"\0")
        while len(data) < MAX_MAGIC_BYTES and (more := self._compressed.read(READ_BYTES)):
            data = (data + more).lstrip(b"\0")
        if data and not self._magic.match(data):
            raise damaged(self._name, self._format, "something else follows it")
        if data:
            self._decompressor = self._new_decompressor()
        return data


def damaged(name: str, kind: str, error: object) -> InputError:
    """The error for a damaged file. kind: "gzip", "tar"; error: the damage"""
    return InputError(f"{quoted(name)}: damaged {kind}: {error}")


def decompressed(raw: io.RawIOBase, name: str, limit: ExpansionLimit) -> io.BufferedReader:
    """A buffered reader of a stream, which decompresses it if it is compressed. name: of the stream, for errors"""
    stream: io.BufferedReader = io.BufferedReader(raw, READ_BYTES)
    start = stream.peek(MAX_MAGIC_BYTES)
    for format, (magic, _) in FORMATS.items():
        if magic.match(start):
            return io.BufferedReader(DecompressedReader(stream, format, name, limit), READ_BYTES)
    return stream
