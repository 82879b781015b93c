"""Compressed bytes as a stream: gzip, bzip2 and xz, told by their first bytes, checked, and refused where they are bombs."""

import bz2
import io
import lzma
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from nmt.errors import ArtefactError, InputError, quoted

GZIP_MAGIC: Final = b"\x1f\x8b"
CHUNK: Final = 1 << 17  # bytes read at once
PACKED_NAME: Final = r"(\.(gz|bz2|xz))?$"  # how the name of a text ends that may be compressed: a pattern
LONGEST_MAGIC: Final = 10  # bytes
MOST_TIMES: Final = 250  # bytes that a byte on disk may unpack to: text gives 3 to 10, zeros in gzip 1,032
FREE_BYTES: Final = 64 << 20  # that may be unpacked whatever the ratio: a small repetitive file is no attack
XZ_MEMORY: Final = 256 << 20  # bytes of xz's dictionary; `xz -9` needs 65 MiB


class Disk(io.FileIO):
    """The file itself. num_read: bytes read from it so far."""

    num_read = 0

    def __init__(self, path: Path) -> None:
        super().__init__(path)

    def readinto(self, buffer: "bytearray | memoryview") -> int | None:  # type: ignore[override]
        count = super().readinto(buffer)
        self.num_read += count or 0
        return count


@dataclass
class Budget:
    """How much has been unpacked, against the bytes that were read from disk for it."""

    disk: Disk
    unpacked: int = 0

    def spend(self, count: int) -> None:
        """Raises ArtefactError for a file that grows as no text does."""
        self.unpacked += count
        if self.unpacked > FREE_BYTES + MOST_TIMES * self.disk.num_read:
            raise ArtefactError(
                f"{quoted(self.disk.name)}: unpacks to more than {MOST_TIMES} times its size, as no text does "
                "(if you trust it, unpack it yourself)"
            )


class _Codec(Protocol):
    """A decompressor, as those of bz2 and lzma are."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes: ...


class _Gunzip:
    """zlib's decompressor of gzip, which checks the CRC itself, in the form of the others."""

    def __init__(self) -> None:
        self._codec = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._codec.eof

    @property
    def needs_input(self) -> bool:
        return not self._codec.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._codec.unused_data

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
        return self._codec.decompress(self._codec.unconsumed_tail + data, max_length)


def _unxz() -> _Codec:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)


PACKINGS: Final[dict[str, tuple[re.Pattern[bytes], Callable[[], _Codec]]]] = {
    "gzip": (re.compile(GZIP_MAGIC), _Gunzip),
    "bzip2": (re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), bz2.BZ2Decompressor),
    "xz": (re.compile(b"\xfd7zXZ\0"), _unxz),
}


class Unpacked(io.RawIOBase):
    """The content of a compressed stream; several one after the other are one, as for gzip itself."""

    def __init__(self, packed: io.BufferedReader, packing: str, place: str, budget: Budget) -> None:
        self._packed, self._packing, self._place, self._budget = packed, packing, place, budget
        self._magic, self._new = PACKINGS[packing]
        self._codec = self._new()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        """Fill the buffer as far as there is something."""
        filled = 0
        while filled < len(buffer):
            piece = self._some(len(buffer) - filled)
            if not piece:
                break
            buffer[filled : filled + len(piece)] = piece
            filled += len(piece)
        self._budget.spend(filled)
        return filled

    def _some(self, most: int) -> bytes:
        data = b""
        while True:
            if self._codec.eof:
                data = self._next_stream()
                if not data:
                    return b""
            elif self._codec.needs_input:
                data = self._packed.read(CHUNK)
            try:
                piece = self._codec.decompress(data, most)
            except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
                raise self._damaged(error) from None
            if piece:
                return piece
            if not data and not self._codec.eof and self._codec.needs_input:
                raise self._damaged("it is cut")
            data = b""

    def _next_stream(self) -> bytes:
        """The beginning of the stream that follows the one that ended; zeros between and behind them are padding."""
        data = self._codec.unused_data.lstrip(b"\0")
        while len(data) < LONGEST_MAGIC and (more := self._packed.read(CHUNK)):
            data = (data + more).lstrip(b"\0")
        if data and not self._magic.match(data):
            raise self._damaged("something else follows it")
        self._codec = self._new() if data else self._codec
        return data

    def _damaged(self, error: object) -> InputError:
        return damaged(self._place, self._packing, error)


def damaged(place: str, kind: str, error: object) -> InputError:
    return InputError(f"{quoted(place)}: damaged {kind}: {error}")


def unpacked(raw: io.RawIOBase, place: str, budget: Budget) -> io.BufferedReader:
    """A stream, decompressed if it is compressed."""
    stream: io.BufferedReader = io.BufferedReader(raw, CHUNK)
    start = stream.peek(LONGEST_MAGIC)
    packing = next((name for name, (magic, _) in PACKINGS.items() if magic.match(start)), None)
    return stream if packing is None else io.BufferedReader(Unpacked(stream, packing, place, budget), CHUNK)
