"""Reads members of tar and zip archives as streams, including compressed and nested archives. Nothing is unpacked to disk.

Archives are untrusted (docs/reference/contract.md). Only regular files are read, under their exact names, and decompression
bombs are rejected.
"""

import io
import lzma
import posixpath
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nmt.errors import ArtefactError, UserError, quoted
from nmt.storages.streams import COMPRESSED_ENDINGS, READ_BYTES, ChunkReader, Stream, decompressed

ZIP_MAGIC: Final = (b"PK\x03\x04", b"PK\x05\x06")  # the second one marks an empty archive
MAX_MEMBERS: Final = 1_000_000  # corpus archives have dozens of members; reading a million headers takes a minute
MAX_TAR_HEADER_BYTES: Final = 1 << 20  # extended headers are read into memory; file names are shorter than 4 kB
LINK_TYPES: Final = (tarfile.LNKTYPE, tarfile.SYMTYPE)
FILE_TYPES: Final = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
TYPES_WITHOUT_DATA: Final = (*LINK_TYPES, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)
IS_FOLDER: Final = "is a folder"
COMPRESSED_ARCHIVES: Final = (".tgz", ".tbz2", ".txz", ".tzst")
ARCHIVE_ENDINGS: Final = (".tar", ".zip", *COMPRESSED_ARCHIVES, *(f".tar{ending}" for ending in COMPRESSED_ENDINGS))


@dataclass(frozen=True)
class Member:
    """A member of an archive.

    refused: why the member cannot be read; empty if it can be
    chunks: its bytes; read them before requesting the next member
    """

    name: str
    refused: str
    chunks: Iterator[bytes]

    def open(self, archive: Stream) -> Stream:
        """Return the member's content, decompressed if necessary. Raises ArtefactError if the member cannot be read."""
        place = f"{archive.place}/{self.name}"
        if self.refused:
            raise ArtefactError(f"{quoted(place)}: it {self.refused}; nmt reads only regular files from archives")
        return decompressed(Stream(ChunkReader(self.chunks), place, archive.disk))

    def name_within(self, wanted: str) -> str | None:
        """The part of a requested path that is below this member: "" for the member itself, None if the path leads elsewhere."""
        name = posixpath.normpath(self.name).lstrip("/")
        if name == wanted:
            return ""
        return wanted[len(name) + 1 :] if wanted.startswith(f"{name}/") and self.refused != IS_FOLDER else None


def _refused(name: str, reason: str) -> str:
    """The reason to refuse a member: a name that points outside the archive, or else the given reason."""
    return "has a name that points outside the archive" if name.startswith("/") or ".." in name.split("/") else reason


def is_zip(stream: Stream) -> bool:
    """Whether a stream starts with the signature of a zip file."""
    return stream.peek(4).startswith(ZIP_MAGIC)


def is_archive(stream: Stream) -> bool:
    """Whether a stream starts like a tar or zip archive."""
    if is_zip(stream):
        return True
    try:
        start = stream.peek(tarfile.BLOCKSIZE)[: tarfile.BLOCKSIZE]
        tarfile.TarInfo.frombuf(start, "utf-8", "surrogateescape")  # verifies the checksum of the block
        return True
    except tarfile.HeaderError:
        return False


def members_of(archive: Stream) -> Iterator[Member]:
    """The members of an archive, in order. Read the content of each member before requesting the next one."""
    return _zip_members(archive) if is_zip(archive) else _tar_members(archive)


def _tar_members(stream: Stream) -> Iterator[Member]:
    """The members of a tar archive.

    `tarfile` parses the header blocks. Its iterator is not used, because it treats a damaged header as the end of the
    archive and reads headers of any size into memory.
    """
    extended: dict[bytes, bytes] = {}
    for _ in range(MAX_MEMBERS):
        block = stream.read(tarfile.BLOCKSIZE)
        if block and not block.strip(b"\0"):
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            size = int(extended.get(b"size", info.size))
        except (tarfile.HeaderError, ValueError) as error:
            raise stream.damaged("tar", error if block else "the file ends too early") from None
        if size < 0 or info.type == tarfile.GNUTYPE_SPARSE:
            raise stream.damaged(
                "tar", "a member has a negative size" if size < 0 else "sparse files are not supported"
            )
        data = _Slice(stream, 0 if info.type in TYPES_WITHOUT_DATA else size, info.name)
        padding = -size % tarfile.BLOCKSIZE if data.left else 0
        if info.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME):
            if size > MAX_TAR_HEADER_BYTES:
                raise ArtefactError(
                    f"{quoted(stream.place)}: a header has {size:,} bytes; the limit is {MAX_TAR_HEADER_BYTES:,}"
                )
            content = b"".join(data)
            is_name = info.type == tarfile.GNUTYPE_LONGNAME
            extended |= {b"path": content.rstrip(b"\0")} if is_name else _pax_records(content, stream)
        elif info.type not in (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK):
            name = extended[b"path"].decode("utf-8", "surrogateescape") if b"path" in extended else info.name
            is_link, is_folder = info.type in LINK_TYPES, info.type == tarfile.DIRTYPE
            kind = IS_FOLDER if is_folder else "is a link" if is_link else "is not a regular file"
            yield Member(name, _refused(name, "" if info.type in FILE_TYPES else kind), data)
            extended = {}
        data.skip(padding)
    raise ArtefactError(f"{quoted(stream.place)}: the archive has more than {MAX_MEMBERS:,} members")


def _pax_records(content: bytes, stream: Stream) -> dict[bytes, bytes]:
    """The records of an extended header; each is "LENGTH KEY=VALUE\\n" (POSIX pax)."""
    records, start = {}, 0
    while start < len(content):
        length, space, _ = content[start : start + 20].partition(b" ")
        if not (space and length.isdigit() and len(length) < int(length) <= len(content) - start):
            raise stream.damaged("tar", "its extended header is malformed")
        key, _, value = content[start + len(length) + 1 : start + int(length) - 1].partition(b"=")
        records[key] = value
        start += int(length)
    return records


class _Slice(Iterator[bytes]):
    """The next bytes of a stream, in chunks. left: number of bytes that have not been read yet"""

    def __init__(self, stream: Stream, size: int, name: str) -> None:
        self._stream, self._name, self.left = stream, name, size

    def __next__(self) -> bytes:
        if not self.left:
            raise StopIteration
        size = min(self.left, READ_BYTES)
        data = self._stream.read(size)
        if len(data) < size:
            raise self._stream.damaged("archive", "the file ends too early", self._name)
        self.left -= size
        return data

    def skip(self, padding: int) -> None:
        """Skip the rest of the slice and the `padding` bytes after it."""
        self.left += padding
        if self.left and self._stream.seekable():
            try:
                self._stream.seek(self.left - 1, io.SEEK_CUR)
            except (OSError, ValueError, OverflowError):  # beyond the size of any file
                raise self._stream.damaged("archive", "the file ends too early", self._name) from None
            self.left = 1  # read the last byte, because seeking past the end of a file is not an error
        for _ in self:
            pass


def _zip_members(stream: Stream) -> Iterator[Member]:
    """The members of a zip archive. The stream must be seekable, because the table of members is at the end."""
    if not stream.seekable():
        raise UserError(
            f"{quoted(stream.place)}: a zip file inside another archive cannot be read (unpack the outer archive)"
        )
    try:
        archive = zipfile.ZipFile(stream)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise stream.damaged("zip", error) from None
    if len(archive.infolist()) > MAX_MEMBERS:
        raise ArtefactError(f"{quoted(stream.place)}: the archive has more than {MAX_MEMBERS:,} members")
    for info in archive.infolist():
        mode = stat.S_IFMT(info.external_attr >> 16)  # 0 if the zip file stores no modes
        kind = "" if mode in (0, stat.S_IFREG) else "is a link" if mode == stat.S_IFLNK else "is not a regular file"
        refused = _refused(info.filename, IS_FOLDER if info.filename.endswith("/") else kind)
        yield Member(info.filename, refused, _zip_chunks(archive, info, stream))


def _zip_chunks(archive: zipfile.ZipFile, info: zipfile.ZipInfo, stream: Stream) -> Iterator[bytes]:
    """The content of a zip member, which is opened when it is first read."""
    try:
        with archive.open(info) as file:
            while data := file.read(READ_BYTES):
                stream.disk.add_unpacked(len(data))
                yield data
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError) as error:
        # RuntimeError: an encrypted member or an unknown compression method
        raise stream.damaged("zip", error, info.filename) from None
