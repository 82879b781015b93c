"""Files inside archives, read as a stream and never unpacked to disk: tar and zip, gzip, bzip2 and xz, one in another.

A member is named as if the archive were a folder: `europarl.tgz/training/europarl-v7.de-en.de`. Archives are untrusted
(docs/contract.md, rule 20): only regular files are read, by their very name, and what unpacks without end is refused.
"""

import difflib
import io
import lzma
import posixpath
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from nmt.errors import ArtefactError, UserError, quoted
from nmt.text.packed import CHUNK, Budget, Disk, Unpacked, damaged, unpacked

PACKED_ENDINGS: Final = (".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz")
ARCHIVE_ENDINGS: Final = (".tar", ".tgz", ".tar.gz", ".tbz2", ".tar.bz2", ".txz", ".tar.xz", ".zip")
ZIP_MAGIC: Final = (b"PK\x03\x04", b"PK\x05\x06")  # the second is of an empty one
MOST_MEMBERS: Final = 1_000_000  # corpora have tens; a walk over so many takes a minute
MOST_HEADER: Final = 1 << 20  # bytes of a member's extended header, which is held in memory; names are below 4 kB
MOST_NESTED: Final = 4  # archives in archives that are looked into when one is checked whole
MOST_HINTS: Final = 1000  # names among which the nearest to a missing one is sought
WITHOUT_DATA: Final = (
    tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE
)  # fmt: skip


class MissingMember(UserError):
    """An archive has no member of the name, or what was taken for an archive is none."""


def located(path: Path) -> tuple[Path, str]:
    """The file on disk that a path leads to, and the name behind it when it is a member of that file ("" if not).

    Raises UserError when there is neither.
    """
    if path.is_dir():
        raise UserError(f"{quoted(path)}: is a folder; wanted a file of text")
    if path.exists():
        return path, ""
    archive = next((parent for parent in path.parents if parent.is_file()), None)
    if archive is None:
        raise UserError(f"{quoted(path)}: no such file")
    return archive, path.relative_to(archive).as_posix()


def exists(path: Path) -> bool:
    """Whether a path is a file or a member of an archive. Raises InputError when the archive is damaged."""
    if path.exists():
        return True
    if not any(parent.is_file() for parent in path.parents):
        return False
    try:
        with open_file(path):
            return True
    except MissingMember:
        return False


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """A file or a member of an archive as bytes, decompressed where its first bytes say that it is compressed.

    Memory is bounded. Opening and reading raise UserError for what is not there, InputError for what is damaged or cut,
    ArtefactError for what is hostile: a member that is no regular file, a name that leaves the archive, a bomb.
    """
    file, member = located(path)
    if ".." in member.split("/"):
        raise ArtefactError(f"{quoted(path)}: a name in an archive may not hold '..'")
    with Disk(file) as disk:
        budget = Budget(disk)
        place, stream = str(file), unpacked(disk, str(file), budget)
        while member:
            place, stream, member = _member(place, stream, member, budget)
        if inside := _members(place, stream, budget):
            first = next((found.name for found in inside if not found.refused), "NAME")
            raise UserError(f"{quoted(place)}: is an archive (name the text in it: {quoted(f'{place}/{first}')})")
        yield cast(BinaryIO, stream)


def check_whole(path: Path, name: str = "") -> None:
    """Read a file to its end, and all that is packed in it.

    name: of the file, where its path is temporary; a server may send a page of HTML under the name of an archive
    Raises InputError when it is damaged or cut, ArtefactError when it holds what no archive of texts does.
    """
    name = (name or path.name).lower()
    with Disk(path) as disk:
        budget = Budget(disk)
        stream = unpacked(disk, str(path), budget)  # kept, as it closes the file when it is let go
        if name.endswith(PACKED_ENDINGS) and not isinstance(stream.raw, Unpacked):
            raise damaged(str(path), "file", f"it is not compressed, as the name {quoted(name)} says")
        if name.endswith(ARCHIVE_ENDINGS) and _members(str(path), stream, budget) is None:
            raise damaged(str(path), "file", f"it is no archive, as the name {quoted(name)} says")
        _read_through(str(path), stream, budget, MOST_NESTED)


def _read_through(place: str, stream: io.BufferedReader, budget: Budget, depth: int) -> None:
    readable = depth and (stream.seekable() or not stream.peek(4).startswith(ZIP_MAGIC))  # of a zip the end comes first
    for found in (_members(place, stream, budget) if readable else None) or ():
        name = f"{place}/{found.name}"
        if found.refused not in ("", FOLDER):
            raise _hostile(name, found.refused)
        if not found.refused:
            _read_through(name, unpacked(found.data, name, budget), budget, depth - 1)
    while stream.read(CHUNK):  # what follows the last member too: the check sum of what is compressed stands at its end
        pass


# What is in an archive


@dataclass(frozen=True)
class _Member:
    """A member of an archive. refused: why it is not read, "" if it may be; data: its bytes, to be read before the next."""

    name: str
    refused: str
    data: io.RawIOBase

    def behind(self, wanted: str) -> str | None:
        """What of a wanted name lies in this member: "" if it is meant itself, None if it is not on the way."""
        own = posixpath.normpath(self.name).lstrip("/")
        if own == wanted:
            return ""
        return wanted[len(own) + 1 :] if wanted.startswith(f"{own}/") and self.refused != FOLDER else None


FOLDER: Final = "is a folder"


def _member(place: str, stream: io.BufferedReader, wanted: str, budget: Budget) -> tuple[str, io.BufferedReader, str]:
    """The first member that is wanted or that holds what is: its place, its bytes, and the name behind it."""
    inside = _members(place, stream, budget)
    if inside is None:
        raise MissingMember(f"{quoted(place)}: is no archive, so there is no '{quoted(wanted)}' in it")
    names: list[str] = []
    for found in inside:
        rest = found.behind(wanted)
        if rest is None:
            names += [found.name] if len(names) < MOST_HINTS and not found.refused else []
            continue
        name = f"{place}/{found.name}"
        if found.refused == FOLDER and not rest:
            raise UserError(f"{quoted(name)}: is a folder; wanted a file of text")
        if found.refused:
            raise _hostile(name, found.refused)
        return name, unpacked(found.data, name, budget), rest
    near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.5)
    hint = f"did you mean '{quoted(near[0])}'?" if near else f"there is: {quoted(', '.join(names) or 'nothing')}"
    raise MissingMember(f"{quoted(place)}: has no member '{quoted(wanted)}' ({hint})")


def _hostile(name: str, why: str) -> ArtefactError:
    return ArtefactError(f"{quoted(name)}: {why}; only regular files of an archive are read")


def _members(place: str, stream: io.BufferedReader, budget: Budget) -> Iterator[_Member] | None:
    """The members of an archive in its own order; None when the stream is none."""
    start = stream.peek(tarfile.BLOCKSIZE)[: tarfile.BLOCKSIZE]
    if start.startswith(ZIP_MAGIC):
        return _zip_members(place, stream, budget)
    try:
        tarfile.TarInfo.frombuf(start, "utf-8", "surrogateescape")  # which compares the block with its check sum
    except tarfile.HeaderError:
        return None
    return _tar_members(place, stream)


def _why_refused(name: str, kind: str) -> str:
    if name.startswith("/") or ".." in name.split("/"):
        return "is a name that leaves the archive"
    return kind


def _tar_members(place: str, stream: io.BufferedReader) -> Iterator[_Member]:
    """The members of a tar. The blocks are tarfile's; the walk is not: that one takes sizes and chains of headers on trust."""
    extended: dict[bytes, bytes] = {}
    for _ in range(MOST_MEMBERS):
        block = stream.read(tarfile.BLOCKSIZE)
        if block and not block.strip(b"\0"):
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            size = int(extended.get(b"size", info.size))
        except (tarfile.HeaderError, ValueError) as error:
            raise damaged(place, "tar", error if block else "it is cut") from None
        if size < 0 or info.type == tarfile.GNUTYPE_SPARSE:
            raise damaged(place, "tar", "a member of a size below 0" if size < 0 else "a sparse file is not read")
        data = _Slice(stream, 0 if info.type in WITHOUT_DATA else size, f"{place}/{info.name}")
        padding = -size % tarfile.BLOCKSIZE if data.left else 0
        if info.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME):
            if size > MOST_HEADER:
                raise ArtefactError(f"{quoted(place)}: a header of {size:,} bytes; at most {MOST_HEADER:,} are read")
            content = data.readall()
            is_name = info.type == tarfile.GNUTYPE_LONGNAME
            extended |= {b"path": content.rstrip(b"\0")} if is_name else _pax(content, place)
        elif info.type not in (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK):
            name = extended[b"path"].decode("utf-8", "surrogateescape") if b"path" in extended else info.name
            yield _Member(name, _why_refused(name, _kind_in_tar(info.type)), data)
            extended = {}
        data.skip(padding)
    raise ArtefactError(f"{quoted(place)}: has more than {MOST_MEMBERS:,} members")


def _kind_in_tar(kind: bytes) -> str:
    if kind in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE):
        return ""
    return FOLDER if kind == tarfile.DIRTYPE else "is a link" if kind in WITHOUT_DATA[:2] else "is no regular file"


def _pax(content: bytes, place: str) -> dict[bytes, bytes]:
    """The records of an extended header, "LENGTH KEY=VALUE\\n" each (POSIX pax)."""
    records, start = {}, 0
    while start < len(content):
        length, space, _ = content[start : start + 20].partition(b" ")
        if not (space and length.isdigit() and len(length) < int(length) <= len(content) - start):
            raise damaged(place, "tar", "an extended header that is none")
        key, _, value = content[start + len(length) + 1 : start + int(length) - 1].partition(b"=")
        records[key] = value
        start += int(length)
    return records


class _Slice(io.RawIOBase):
    """The next bytes of a stream. left: how many of them are still to come."""

    def __init__(self, stream: io.BufferedReader, size: int, place: str) -> None:
        self._stream, self._place = stream, place
        self.left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        view = memoryview(buffer)[: self.left]
        count = self._stream.readinto(view)
        self.left -= count
        if count < len(view):
            raise damaged(self._place, "archive", "it is cut")
        return count

    def skip(self, padding: int) -> None:
        """Go to the end of the slice, and `padding` bytes further."""
        self.left += padding
        if self.left and self._stream.seekable():
            self._stream.seek(self.left - 1, io.SEEK_CUR)
            self.left = 1  # read, because a seek goes behind the end of a file without a word
        while self.left:
            self.read(min(self.left, CHUNK))


def _zip_members(place: str, stream: io.BufferedReader, budget: Budget) -> Iterator[_Member]:
    """The members of a zip, whose table of them stands at its end."""
    if not stream.seekable():
        raise UserError(f"{quoted(place)}: is a zip in another archive, which cannot be read as it comes (unpack it)")
    try:
        archive = zipfile.ZipFile(stream)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise damaged(place, "zip", error) from None
    if len(archive.infolist()) > MOST_MEMBERS:
        raise ArtefactError(f"{quoted(place)}: has more than {MOST_MEMBERS:,} members")
    for info in archive.infolist():
        mode = stat.S_IFMT(info.external_attr >> 16)  # 0 where the zip was made without one
        kind = "" if mode in (0, stat.S_IFREG) else "is a link" if mode == stat.S_IFLNK else "is no regular file"
        refused = _why_refused(info.filename, FOLDER if info.is_dir() else kind)
        yield _Member(info.filename, refused, _Zipped(archive, info, f"{place}/{info.filename}", budget))


class _Zipped(io.RawIOBase):
    """A member of a zip, opened when it is first read."""

    def __init__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, place: str, budget: Budget) -> None:
        self._archive, self._info, self._place, self._budget = archive, info, place, budget
        self._file: io.BufferedIOBase | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        try:
            if self._file is None:
                self._file = cast(io.BufferedIOBase, self._archive.open(self._info))
            data = self._file.read(len(buffer))
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError) as error:
            raise damaged(self._place, "zip", error) from None  # RuntimeError: encrypted, or a method not known
        buffer[: len(data)] = data
        self._budget.spend(len(data))
        return len(data)
