"""Writes files completely or not at all, names the file in read errors, and handles JSON."""

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import msgspec

from nmt.errors import ArtefactError, expecting, naming, quoted, storage_error
from nmt.locks import HELD, open_without_following

TEMPORARY_ENDING: Final = ".partial"
MAX_NAME: Final = 200  # bytes of a file name kept in its temporary name, which must not exceed 255 bytes
MAX_JSON_BYTES: Final = 1 << 28

# Integers in a file, from 0 or from 1, within the range of numpy's int64.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Ordinal = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


def sha256(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with naming(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_bytes(path: Path) -> bytes:
    """Read a regular file. Raises OSError for anything else, such as a pipe that nobody writes to."""
    with naming(path), open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read()


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises ArtefactError if it is not JSON or is larger than MAX_JSON_BYTES."""
    with naming(path):
        num_bytes = path.stat().st_size
    if num_bytes > MAX_JSON_BYTES:
        raise ArtefactError(f"{quoted(path)} has {num_bytes:,} bytes, but nmt writes at most {MAX_JSON_BYTES:,}")
    return parse_json(read_bytes(path), path)


def parse_json(content: bytes, path: Path) -> Any:
    """Parse the JSON of a file. Raises ArtefactError if it is not JSON, or if an object has a key twice."""
    with expecting("valid JSON", path):
        return json.loads(content, object_pairs_hook=_with_single_keys)


def _with_single_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a key occurs twice among {', '.join(key for key, _ in pairs)}")
    return found


def to_json(value: Any) -> bytes:
    """Encode a value as JSON for a file. Bytes of file names that are not UTF-8 are escaped, because JSON must be UTF-8."""
    return json_text(value).encode(errors="backslashreplace")


def json_text(value: Any) -> str:
    """Format a value as lines of JSON. Non-UTF-8 file names keep surrogates, which stdout writes as the original bytes."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


@contextlib.contextmanager
def new_file(path: Path, needed: int | None = None) -> Iterator[BinaryIO]:
    """Open a new file under a temporary name. When the block ends, the file is synced and renamed, and its folder is synced.

    needed: bytes to write, if known
    An OSError that concerns this file becomes a ResourceError with this path; other OSErrors are unchanged.

    If two processes write the same file, the last one to finish wins. Temporary files of killed writers are removed. The new file
    gets the permissions and group of the file that it replaces.
    """
    try:
        with _opened(path.parent) as folder:
            _remove_unused(path)
            with _temporary(path, folder) as (name, file):
                keep_permissions(path, file.fileno())
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
    except OSError as error:
        if _is_of_writing(error.filename, path):
            raise storage_error(error, path, needed) from error
        raise


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a file or folder read-only. Yields its descriptor."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe does not block, but causes an error later
    try:
        yield handle
    finally:
        with contextlib.suppress(OSError):  # an error here loses no data
            os.close(handle)


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    with _opened(path) as handle:
        os.fsync(handle)


@contextlib.contextmanager
def _temporary(path: Path, folder: int) -> Iterator[tuple[str, BinaryIO]]:
    """Create a temporary file for `path` in its open folder. At the end, the file is removed if it still has its temporary name.

    The name is new, so it cannot be a link. The file is locked while it is open, which marks it as in use.
    """
    while True:
        name = f"{_start_of_temporaries(path)}{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY_ENDING}"
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                if _lock_new(file):
                    yield name, file
                    return
        finally:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)


def _lock_new(file: BinaryIO) -> bool:
    """Lock a new temporary file. Returns False if a process that removes unused files has locked or removed it first."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in HELD:  # any other error means that the file system does not support locks
            return False
    return os.fstat(file.fileno()).st_nlink > 0


def _remove_unused(path: Path) -> None:
    """Remove temporary files of a path that killed writers left behind."""
    start = _start_of_temporaries(path)
    for unused in path.parent.glob(glob.escape(start) + "*" + TEMPORARY_ENDING):
        is_own = unused.name.startswith(
            f"{start}{os.getpid()}-"
        )  # testing a lock that this process holds would release it
        with contextlib.suppress(OSError):  # the file may belong to another user
            if not is_own:
                remove_unless_locked(unused)


def remove_unless_locked(path: Path) -> None:
    """Remove a temporary file, or a link in its place, unless a writer has locked it.

    The file is removed while this process holds its lock. A writer that has just created it notices this, and creates another.
    """
    if path.is_symlink():
        path.unlink()
        return
    with open(path, "rb", buffering=0, opener=open_without_following) as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return
        path.unlink(missing_ok=True)


def _is_of_writing(name: Any, path: Path) -> bool:
    """Whether an OSError with this file name (or none) concerns a file being written, its folder or its temporary file."""
    text = os.fspath(name) if isinstance(name, str | os.PathLike) else str(path)
    return text in (str(path), str(path.parent)) or text.startswith(_start_of_temporaries(path))


def _start_of_temporaries(path: Path) -> str:
    return f".{os.fsdecode(os.fsencode(path.name)[:MAX_NAME])}."


def keep_permissions(path: Path, successor: int | Path) -> None:
    """Give a new file or folder the group and permissions of the one that it replaces, if there is one.

    successor: descriptor or path of the new one
    Write permission for everybody is dropped, and the owner of a folder always keeps access. Links are ignored.
    """
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISLNK((status := path.lstat()).st_mode):
            return
        with contextlib.suppress(PermissionError):  # the user may not be in that group
            os.chown(successor, -1, status.st_gid)
        of_owner = stat.S_IRWXU if stat.S_ISDIR(status.st_mode) else 0
        os.chmod(successor, stat.S_IMODE(status.st_mode) & ~stat.S_IWOTH | of_owner)  # noqa: PTH101 Path.chmod takes no descriptor


@contextlib.contextmanager
def new_output(path: Path, needed: int | None = None) -> Iterator[BinaryIO]:
    """Open an output file given by the user. Regular files are replaced as by `new_file`. Raises ResourceError on failure.

    Links are followed, and the file at their end is replaced. Devices, pipes and open descriptors such as /dev/stdout are written
    to directly; their OSErrors name this path.
    """
    if (replaced := _replaced_file(path)) is None:
        with naming(path), open(path, "wb", opener=_at_end) as stream:
            yield stream
    else:
        with new_file(replaced, needed) as file:
            yield file


def _replaced_file(path: Path) -> Path | None:
    """The file that an output replaces, after following links; None for a device, a pipe or a descriptor such as /dev/stdout.

    Raises ResourceError for a folder.
    """
    if path.is_dir():
        raise storage_error(OSError(errno.EISDIR, os.strerror(errno.EISDIR)), path)
    place = path
    with contextlib.suppress(OSError):  # the file does not exist, or opening it will report the error
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        while place.is_symlink():
            if os.path.realpath(place.parent).startswith("/proc/"):  # a regular file that a shell may append to
                return None
            place = place.parent / place.readlink()
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _at_end(path: str, _flags: int) -> int:
    """Open an existing file for appending, because stdout may be a file that a shell appends to."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with new_file(path, len(data)) as file:
        file.write(data)


def write_output(path: Path, data: bytes) -> None:
    """Write an output file given by the user; see `new_output`."""
    with new_output(path, len(data)) as file:
        file.write(data)


def open_to_append(path: Path) -> int:
    """Open a growing file, such as a log, or create it, and return its descriptor. Raises ResourceError."""
    try:
        return open_without_following(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
    except OSError as error:
        raise storage_error(error, path) from error


def check_writable(folder: Path) -> None:
    """Raise ResourceError if no file can be created in a folder."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise storage_error(error, folder) from error


def are_same(first: str | Path, second: str | Path) -> bool:
    """Whether two paths lead to the same file, possibly through links or hard links. The file need not exist."""
    with contextlib.suppress(OSError):
        return Path(first).samefile(second)
    return os.path.realpath(first) == os.path.realpath(second)


def check_output_file(path: Path) -> None:
    """Raise ResourceError early if `new_output` could not write to a path."""
    if (replaced := _replaced_file(path)) is not None:
        check_writable(replaced.parent)
