"""Members of tar and zip archives as streams, compressed and nested ones too; nothing is unpacked to disk.

A member is named as if the archive were a folder: `europarl.tgz/training/europarl-v7.de-en.de`. Archives are untrusted
(docs/reference/contract.md): only regular files are read, under their exact name, and decompression bombs are refused.
"""

import difflib
import io
import lzma
import posixpath
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nmt.errors import ArtefactError, UserError, quoted
from nmt.text.compression import READ_BYTES, ChunkReader, MeteredFile, Stream, decompressed

HTML_START: Final = re.compile(rb"\s*<(?:!doctype\s+html|html)", re.IGNORECASE)
HTML_BYTES: Final = 512
COMPRESSED_ENDINGS: Final = (".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz")
ARCHIVE_ENDINGS: Final = (".tar", ".tgz", ".tar.gz", ".tbz2", ".tar.bz2", ".txz", ".tar.xz", ".zip")
ZIP_MAGIC: Final = (b"PK\x03\x04", b"PK\x05\x06")  # the second begins an empty archive
OFFICE_MEMBERS: Final = frozenset(["[Content_Types].xml", "mimetype"])  # of Office Open XML and OpenDocument
MAX_MEMBERS: Final = 1_000_000  # corpora have tens; reading the headers of a million takes a minute
MAX_TAR_HEADER_BYTES: Final = 1 << 20  # an extended header is held in memory; names are below 4 kB
MAX_NESTED_ARCHIVES: Final = 4  # levels that `check_whole` reads
MAX_SUGGESTED_NAMES: Final = 1000  # names that a missing one is compared with
LINK_TYPES: Final = (tarfile.LNKTYPE, tarfile.SYMTYPE)
FILE_TYPES: Final = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
TYPES_WITHOUT_DATA: Final = (*LINK_TYPES, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)
IS_FOLDER: Final = "is a folder"


class MissingMember(UserError):
    """An archive has no member of the name, or a file named as an archive is none."""


def _split_path(path: Path) -> tuple[Path, str]:
    """A file on disk, and the name of the member in it; "" for the file itself. Raises UserError for neither."""
    if path.is_dir():
        raise UserError(f"{quoted(path)}: is a folder; must be a file of text")
    if path.exists():
        return path, ""
    archive = next((parent for parent in path.parents if parent.is_file()), None)
    if archive is None:
        raise UserError(f"{quoted(path)}: no such file")
    return archive, path.relative_to(archive).as_posix()


def text_exists(path: Path) -> bool:
    """Whether a path is a file or a member of an archive. Raises InputError for a damaged archive."""
    if path.exists() or not any(parent.is_file() for parent in path.parents):
        return path.exists()
    try:
        with open_file(path):
            return True
    except MissingMember:
        return False


@contextmanager
def open_file(path: Path, whole: bool = False) -> Iterator[Stream]:
    """A file or a member of an archive as bytes, decompressed if its first bytes are those of a compressed file.

    Memory is bounded. Opening and reading raise UserError for a missing file or member, InputError for a damaged one,
    ArtefactError for a hostile archive: a member that is no regular file, a name outside the archive, a bomb.
    whole: read an archive to its end afterwards, where the check sum of what is compressed stands
    """
    file, member = _split_path(path)
    if ".." in member.split("/"):
        raise ArtefactError(f"{quoted(path)}: a name in an archive may not hold '..'")
    with _open_stored(file) as stored:
        stream = outer = decompressed(stored)
        while member:
            stream, member = _find_member(stream, member)
        is_zip = stream.peek(4).startswith(ZIP_MAGIC)
        if members := _members(stream):
            names = (member.name for member in members if not member.refused)
            first = next(names, "NAME")
            if is_zip and not OFFICE_MEMBERS.isdisjoint([first, *names]):
                raise UserError(
                    f"{quoted(stream.place)}: is an office document (save it as plain text, a sentence a line)"
                )
            text = quoted(f"{stream.place}/{first}")
            raise UserError(f"{quoted(stream.place)}: is an archive (name the text in it: {text})")
        yield stream
        while whole and outer.read(READ_BYTES):
            pass


def check_whole(path: Path, name: str = "") -> None:
    """Read a file to its end, and every member of an archive.

    name: of the file, if the path is a temporary one: a server may send a page of HTML as `a.tgz`
    Raises InputError for a damaged or cut file, ArtefactError for a hostile one.
    """
    name = (name or path.name).lower()
    with _open_stored(path) as stored:
        stream = decompressed(stored)
        if name.endswith(COMPRESSED_ENDINGS) and stream is stored:
            raise stream.damaged("file", f"its name {quoted(name)} says that it is compressed, and it is not")
        if name.endswith(ARCHIVE_ENDINGS) and _members(stream) is None:
            raise stream.damaged("file", f"its name {quoted(name)} says that it is an archive, and it is not")
        if HTML_START.match(stored.peek(HTML_BYTES)) and not name.endswith((".html", ".htm")):
            raise stream.damaged("file", "it is a page of HTML, such as a server sends in place of a file")
        _read_whole(stream, MAX_NESTED_ARCHIVES)


def _open_stored(path: Path) -> Stream:
    disk = MeteredFile(path)
    return Stream(disk, str(path), disk)


def _read_whole(stream: Stream, levels: int) -> None:
    is_stream_of_zip = not stream.seekable() and stream.peek(4).startswith(ZIP_MAGIC)  # its table is at the end
    members = _members(stream) if levels and not is_stream_of_zip else None
    for member in members or ():
        if member.refused != IS_FOLDER:
            _read_whole(member.open(stream), levels - 1)
    while stream.read(READ_BYTES):  # to the end, where the check sum of a compressed file stands
        pass


@dataclass(frozen=True)
class _Member:
    """A member of an archive.

    refused: the reason why it may not be read, or ""
    chunks: its bytes, to be read before the next member
    """

    name: str
    refused: str
    chunks: Iterator[bytes]

    def open(self, archive: Stream) -> Stream:
        """Its content, decompressed if it is compressed. Raises ArtefactError if it may not be read."""
        place = f"{archive.place}/{self.name}"
        if self.refused:
            raise ArtefactError(f"{quoted(place)}: {self.refused}; only regular files of an archive are read")
        return decompressed(Stream(ChunkReader(self.chunks), place, archive.disk))

    def name_within(self, wanted: str) -> str | None:
        """The rest of a wanted name in this member: "" for the member itself, None for a name that is not in it."""
        name = posixpath.normpath(self.name).lstrip("/")
        if name == wanted:
            return ""
        return wanted[len(name) + 1 :] if wanted.startswith(f"{name}/") and self.refused != IS_FOLDER else None


def _find_member(archive: Stream, wanted: str) -> tuple[Stream, str]:
    """The first member that is or contains a wanted name: its content, and the rest of the wanted name."""
    members = _members(archive)
    if members is None:
        raise MissingMember(f"{quoted(archive.place)}: is a file but no archive, so it has no '{quoted(wanted)}'")
    names: list[str] = []
    for member in members:
        rest = member.name_within(wanted)
        if rest is None:
            names += [member.name] if len(names) < MAX_SUGGESTED_NAMES and not member.refused else []
            continue
        if member.refused == IS_FOLDER:  # and the wanted member itself
            raise UserError(f"{quoted(f'{archive.place}/{member.name}')}: is a folder; must be a file of text")
        return member.open(archive), rest
    near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.5)
    hint = f"did you mean '{quoted(near[0])}'?" if near else f"there is: {quoted(', '.join(names) or 'nothing')}"
    raise MissingMember(f"{quoted(archive.place)}: has no member '{quoted(wanted)}' ({hint})")


def _refused(name: str, reason: str) -> str:
    """The reason why a member is refused: its name, or else the reason given."""
    return "is a name that leaves the archive" if name.startswith("/") or ".." in name.split("/") else reason


def _members(stream: Stream) -> Iterator[_Member] | None:
    """The members of an archive in its order; None for a stream that is no archive."""
    start = stream.peek(tarfile.BLOCKSIZE)[: tarfile.BLOCKSIZE]
    if start.startswith(ZIP_MAGIC):
        return _zip_members(stream)
    try:
        tarfile.TarInfo.frombuf(start, "utf-8", "surrogateescape")  # compares the block with its check sum
    except tarfile.HeaderError:
        return None
    return _tar_members(stream)


def _tar_members(stream: Stream) -> Iterator[_Member]:
    """The members of a tar.

    `tarfile` parses the header blocks. Its own iteration is not used: it takes a damaged header for the end of the
    archive, and reads headers of any size into memory.
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
            raise stream.damaged("tar", error if block else "it ends too early") from None
        if size < 0 or info.type == tarfile.GNUTYPE_SPARSE:
            raise stream.damaged("tar", "a member has a size below 0" if size < 0 else "sparse files are not supported")
        data = _Slice(stream, 0 if info.type in TYPES_WITHOUT_DATA else size, info.name)
        padding = -size % tarfile.BLOCKSIZE if data.left else 0
        if info.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME):
            if size > MAX_TAR_HEADER_BYTES:
                raise ArtefactError(
                    f"{quoted(stream.place)}: a header of {size:,} bytes; at most {MAX_TAR_HEADER_BYTES:,} are read"
                )
            content = b"".join(data)
            is_name = info.type == tarfile.GNUTYPE_LONGNAME
            extended |= {b"path": content.rstrip(b"\0")} if is_name else _pax_records(content, stream)
        elif info.type not in (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK):
            name = extended[b"path"].decode("utf-8", "surrogateescape") if b"path" in extended else info.name
            is_link, is_folder = info.type in LINK_TYPES, info.type == tarfile.DIRTYPE
            kind = IS_FOLDER if is_folder else "is a link" if is_link else "is no regular file"
            yield _Member(name, _refused(name, "" if info.type in FILE_TYPES else kind), data)
            extended = {}
        data.skip(padding)
    raise ArtefactError(f"{quoted(stream.place)}: has more than {MAX_MEMBERS:,} members")


def _pax_records(content: bytes, stream: Stream) -> dict[bytes, bytes]:
    """The records of an extended header, "LENGTH KEY=VALUE\\n" each (POSIX pax)."""
    records, start = {}, 0
    while start < len(content):
        length, space, _ = content[start : start + 20].partition(b" ")
        if not (space and length.isdigit() and len(length) < int(length) <= len(content) - start):
            raise stream.damaged("tar", "its extended header cannot be read")
        key, _, value = content[start + len(length) + 1 : start + int(length) - 1].partition(b"=")
        records[key] = value
        start += int(length)
    return records


class _Slice(Iterator[bytes]):
    """The next bytes of a stream, in chunks. left: number of bytes not yet read"""

    def __init__(self, stream: Stream, size: int, name: str) -> None:
        self._stream, self._name, self.left = stream, name, size

    def __next__(self) -> bytes:
        if not self.left:
            raise StopIteration
        size = min(self.left, READ_BYTES)
        data = self._stream.read(size)
        if len(data) < size:
            raise self._stream.damaged("archive", "it ends too early", self._name)
        self.left -= size
        return data

    def skip(self, padding: int) -> None:
        """Go to the end of the slice, and `padding` bytes further."""
        self.left += padding
        if self.left and self._stream.seekable():
            try:
                self._stream.seek(self.left - 1, io.SEEK_CUR)
            except (OSError, ValueError, OverflowError):  # no file is as large as that
                raise self._stream.damaged("archive", "it ends too early", self._name) from None
            self.left = 1  # the last byte is read, since a seek past the end of a file is no error
        for _ in self:
            pass


def _zip_members(stream: Stream) -> Iterator[_Member]:
    """The members of a zip, which has to be seekable: its table of members stands at its end."""
    if not stream.seekable():
        raise UserError(
            f"{quoted(stream.place)}: is a zip in another archive, which cannot be read as a stream (unpack the outer one)"
        )
    try:
        archive = zipfile.ZipFile(stream)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise stream.damaged("zip", error) from None
    if len(archive.infolist()) > MAX_MEMBERS:
        raise ArtefactError(f"{quoted(stream.place)}: has more than {MAX_MEMBERS:,} members")
    for info in archive.infolist():
        mode = stat.S_IFMT(info.external_attr >> 16)  # 0 in a zip made without modes
        kind = "" if mode in (0, stat.S_IFREG) else "is a link" if mode == stat.S_IFLNK else "is no regular file"
        refused = _refused(info.filename, IS_FOLDER if info.filename.endswith("/") else kind)
        yield _Member(info.filename, refused, _zip_chunks(archive, info, stream))


def _zip_chunks(archive: zipfile.ZipFile, info: zipfile.ZipInfo, stream: Stream) -> Iterator[bytes]:
    """The content of a member of a zip, which is opened at the first read."""
    try:
        with archive.open(info) as file:
            while data := file.read(READ_BYTES):
                stream.disk.add_unpacked(len(data))
                yield data
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError) as error:
        # RuntimeError: encrypted, or an unknown method
        raise stream.damaged("zip", error, info.filename) from None
