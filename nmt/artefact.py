"""Atomic files and folders, manifests with check sums, and locks.

An artefact is a folder with a `manifest.json`, which has the size and the sha256 of each of its files. It is filled
under a temporary name beside its final one, and renamed when it is complete (docs/reference/contract.md).
"""

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
import platform
import secrets
import shutil
import socket
import tempfile
from collections.abc import Collection, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from nmt.errors import ArtefactError, LockedError, OtherFormatError, ResourceError, UserError, expecting, naming, quoted
from nmt.log import log
from nmt.version import __version__

FORMAT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
KIND_NAMES: Final = {  # in messages
    "prepared-data": "prepared data (nmt prepare)",
    "checkpoint": "a run or checkpoint (nmt train)",
    "model": "a model (nmt average)",
    "ctranslate2": "a model for CTranslate2 (nmt export)",
}
REPAIR: Final = "make the folder again, or copy it again"
LOCK: Final = ".lock"
MAX_HOLDER_BYTES: Final = 200  # of the text in a lock
TEMPORARY_ENDING: Final = ".partial"
REPLACED_ENDING: Final = ".replaced.partial"  # of a folder's name while its successor takes its place
REMOVED_ENDING: Final = ".removed.partial"  # of a folder's name while its files are removed
MAX_NAME: Final = 200  # characters of a file's name in that of its temporary, which must not exceed 255 bytes


def sha256(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with naming(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_bytes(path: Path) -> bytes:
    """The content of a file."""
    with naming(path):
        return path.read_bytes()


def _sync(path: Path) -> None:
    """Sync a file or a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def storage_error(error: OSError, path: Path, needed: int | None = None, lacks_inodes: bool = False) -> UserError:
    """The error for an OSError while writing a file: ResourceError, but for a name that is too long.

    needed: bytes to be written, if known; lacks_inodes: whether no inode was free when the error came
    """
    message = f"{quoted(path)}: cannot be written: {error.strerror or error}"
    if error.errno == errno.ENAMETOOLONG:
        return UserError(f"{message} (name another)")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        at_least = f"at least {needed:,} bytes needed, " if needed is not None else ""
        inodes = ", but no inode" if lacks_inodes or _lacks_inodes(path) else ""
        message += f" ({at_least}{_free_bytes(path):,} free{inodes}; make room or name another folder)"
    return ResourceError(message)


def _nearest_folder(path: Path) -> Path:
    """The folder of a path that may not exist, or the nearest one above that does."""
    return next((place for place in (path.absolute(), *path.absolute().parents) if place.is_dir()), Path())


def _lacks_inodes(path: Path) -> bool:
    system = os.statvfs(_nearest_folder(path))
    return bool(system.f_files) and not system.f_favail


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(_nearest_folder(path)).free


@contextlib.contextmanager
def new_file(path: Path, needed: int | None = None) -> Iterator[BinaryIO]:
    """Open a new file, which gets its name when the block ends: temporary name, fsync, rename, fsync of the folder.

    needed: bytes to be written, if known
    Raises ResourceError with this path for an OSError of the file, and leaves that of another file as it is.

    The temporary name is new and no link, so that of two writers of one file the last to end wins, whole. Temporaries of
    writers that were killed are removed.
    """
    name, folder = None, None
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        _remove_unused(path)
        name, file = _new_locked_file(path, folder)
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except BaseException as error:
        if name is not None:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
        if isinstance(error, OSError) and _is_of_writing(error.filename, path):
            raise storage_error(error, path, needed) from error
        raise
    finally:
        if folder is not None:
            os.close(folder)


def _is_of_writing(name: Any, path: Path) -> bool:
    """Whether an OSError with this file name, or with none, is of writing a file: of it, its folder or its temporary."""
    is_named = isinstance(name, str) and name not in (str(path), str(path.parent))
    return not is_named or name.startswith(_start_of_temporaries(path))


def _start_of_temporaries(path: Path) -> str:
    return f".{path.name[:MAX_NAME]}."


def _new_locked_file(path: Path, folder: int) -> tuple[str, BinaryIO]:
    """The name of a new temporary in an open folder, and the file, locked as long as it is open: it is in use."""
    while True:
        name = f"{_start_of_temporaries(path)}{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY_ENDING}"
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder)
        file = os.fdopen(handle, "wb")
        with contextlib.suppress(OSError):  # held for a moment by a process that looks for unused files
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_nlink:
            return name, file
        file.close()  # removed by that process


def _remove_unused(path: Path) -> None:
    """Remove the temporaries of a file whose writers were killed."""
    start = _start_of_temporaries(path)
    for unused in path.parent.glob(glob.escape(start) + "*" + TEMPORARY_ENDING):
        is_own = unused.name.startswith(f"{start}{os.getpid()}-")  # a look at its lock would end it
        with contextlib.suppress(OSError):  # of another user
            if not is_own and not unused.is_dir() and _holder(unused) is None:
                unused.unlink(missing_ok=True)


def check_writable(folder: Path) -> None:
    """Raise ResourceError if no file can be made in a folder."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise storage_error(error, folder) from error


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with new_file(path, len(data)) as file:
        file.write(data)


def check_file_name(path: Path, endings: Collection[str], action: str) -> None:
    """Raise UserError unless a file to write has one of these endings, and its folder exists.

    action: start of the message: "a graph is drawn"
    """
    if path.suffix.lower() not in endings:
        raise UserError(f"{quoted(path)}: {action} into a file whose name ends with {', '.join(endings)}")
    if not path.parent.is_dir():
        raise UserError(f"{quoted(path)}: there is no folder {quoted(path.parent)} (make it, or name another)")


def to_json(value: Any) -> bytes:
    """A value as the content of a JSON file. Bytes of a file name that are not UTF-8 are escaped: JSON is UTF-8."""
    return json_text(value).encode(errors="backslashreplace")


def json_text(value: Any) -> str:
    """A value as lines of JSON. A file name that is not UTF-8 keeps its surrogates, which stdout writes as its bytes."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


class Lock:
    """An exclusive `lockf` on `.lock` in a folder, held until closed or until the process ends.

    lockf and not flock: children inherit a flock, so that orphans of a killed run would keep it.
    A folder that the lock created is removed with it if it is still empty.
    """

    def __init__(self, folder: Path) -> None:
        """Raises LockedError, which names the holder, when another process holds it."""
        self._path, self._created_folder = folder / LOCK, not folder.exists()
        try:
            self._file = self._open_and_lock()
            while not self._is_current():  # its last holder removed it between opening and locking here
                self._file.close()
                self._file = self._open_and_lock()
            self._write_holder()
        except OSError as error:
            lacks_inodes = _lacks_inodes(self._path)
            if self._created_folder:
                with contextlib.suppress(OSError):
                    self._path.unlink(missing_ok=True)
                    folder.rmdir()
            raise storage_error(error, self._path, None, lacks_inodes) from error

    def _write_holder(self) -> None:
        try:
            self._file.truncate(0)
            self._file.write(f"{socket.gethostname()} pid {os.getpid()}".encode())
        except OSError:
            self._file.close()
            raise

    def _open_and_lock(self) -> FileIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = open(self._path, "a+b", buffering=0, opener=_without_following)  # noqa: SIM115 - until the lock is closed
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = quoted(file.read(MAX_HOLDER_BYTES).decode(errors="replace").strip() or "unknown")
            file.close()
            raise LockedError(f"{quoted(self._path.parent)}: in use by {holder} (wait for it, or end it)") from None
        return file

    def _is_current(self) -> bool:
        """Whether the locked file still has its name."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        if self._file.closed:
            return
        is_empty = [path.name for path in self._path.parent.glob("*")] == [LOCK]
        if self._created_folder and is_empty and self._is_current():
            self._path.unlink()
            self._path.parent.rmdir()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def lock_holder(folder: Path) -> str | None:
    """The host and process id of the process that holds the lock of a folder; None if it is free.

    Do not call it in that process: the end of the look would end its lock, as POSIX demands.
    """
    return _holder(folder / LOCK)


def _holder(path: Path) -> str | None:
    """What a locked file says; None if it is not locked, not there, or a link."""
    try:
        with open(path, "rb", opener=_without_following) as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return (file.read(MAX_HOLDER_BYTES) or b"").decode(errors="replace").strip() or "unknown"
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
    return None


def _without_following(path: str, flags: int) -> int:
    """Open a file whose name may be a link of somebody else's, which is an OSError. For `opener` of `open`."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def remove_artefact(folder: Path) -> None:
    """Remove an artefact, which loses its name before its files; a link to one is removed and not followed.

    What its manifest does not list stays, under the folder's name, with a warning. Raises NotADirectoryError for a file.
    """
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if folder.is_symlink():
        folder.unlink()
    else:
        _finish_removal(folder.rename(folder.with_name(f".{folder.name}{REMOVED_ENDING}")), folder)


def _finish_removal(removed: Path, name: Path) -> None:
    """Remove what the manifest of an artefact lists; what remains gets the name back, or moves into the folder of that name."""
    if not (remaining := _remove_listed(removed)):
        return
    shown = ", ".join(quoted(path.relative_to(removed)) for path in remaining)
    log.warn(f"{quoted(name)}: not written by nmt, and therefore not removed: {shown}")
    if not name.exists():
        removed.rename(name)
        return
    for path in remaining:
        kept = name / path.relative_to(removed)
        while os.path.lexists(kept):
            kept = kept.with_name(kept.name + "~")
        kept.parent.mkdir(parents=True, exist_ok=True)
        path.rename(kept)
    shutil.rmtree(removed)


def _remove_listed(folder: Path) -> list[Path]:
    """Remove what the manifest of a folder lists, the manifest after it, and empty folders; what else is in it."""
    listed, remaining, manifest = {folder / LOCK}, list[Path](), folder / MANIFEST
    is_readable = False
    with contextlib.suppress(ArtefactError):
        listed |= {folder / name for name in _read_manifest(folder, tuple(KIND_NAMES))["files"]}
        is_readable = True
    for parent, folders, files in os.walk(folder, topdown=False):  # does not follow links
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for path in (Path(parent) / name for name in (*links, *files)):
            if path in listed:
                path.unlink()
            elif path != manifest or not is_readable:
                remaining.append(path)
        if Path(parent) != folder:
            with contextlib.suppress(OSError):  # has remaining files
                Path(parent).rmdir()
    if is_readable:
        manifest.unlink()
    if not remaining:
        folder.rmdir()
    return sorted(remaining)


@contextlib.contextmanager
def removing(path: Path) -> Iterator[None]:
    """Make a removal that fails a warning, where all that is wanted is in place already."""
    try:
        yield
    except OSError as error:
        log.warn(f"{quoted(path)}: cannot be removed: {error.strerror or error} (remove it)")


def _put_in_place(temporary: Path, final: Path) -> None:
    """Rename a complete folder to its final name. The folder it replaces is removed last, or restored on an error."""
    old = final.with_name(f".{final.name}{REPLACED_ENDING}")
    _finish_replacement(old, final)
    if final.exists():
        final.rename(old)
    try:
        temporary.rename(final)
    except BaseException:
        if old.exists():
            old.rename(final)
        raise
    (final / LOCK).unlink()
    _sync(final.parent)
    with removing(old):
        _finish_replacement(old, final)


def _finish_replacement(old: Path, final: Path) -> None:
    """Remove a replaced folder, or give it its name back if its successor never got it."""
    if old.is_dir() and not old.is_symlink():
        if final.exists():
            _finish_removal(old, final)
        else:
            old.rename(final)


def remove_leftovers(parent: Path) -> None:
    """Remove the temporaries of an interrupted run from a folder whose lock is held."""
    for path in sorted(parent.glob(".*" + TEMPORARY_ENDING)):
        with removing(path):
            if path.is_symlink() or not path.is_dir():
                if _holder(path) is None:
                    path.unlink()
            elif path.name.endswith(REPLACED_ENDING):
                _finish_replacement(path, parent / path.name[1 : -len(REPLACED_ENDING)])
            elif path.name.endswith(REMOVED_ENDING):
                _finish_removal(path, parent / path.name[1 : -len(REMOVED_ENDING)])
            elif lock_holder(path) is None:
                shutil.rmtree(path)


def check_output(folder: Path, kind: str, overwrite: bool) -> None:
    """Raise UserError for an output folder with files, unless it is an artefact of this kind and may be overwritten."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UserError(f"{quoted(folder)}: is not a folder (name another)")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / MANIFEST).exists():
        raise UserError(f"{quoted(folder)}: holds files that nmt did not write (name another folder)")
    if not overwrite:
        raise UserError(f"{quoted(folder)}: already there (name another folder, or give --overwrite)")
    try:
        _read_manifest(folder, (kind,))
    except ArtefactError as error:
        raise UserError(f"{error} (name another folder)") from None


@contextlib.contextmanager
def new_folder(final: Path, kind: str, facts: Mapping[str, Any], needed: int | None = None) -> Iterator[Path]:
    """A temporary folder to fill, which becomes the artefact `final` when the block ends without an error.

    kind: prepared-data, checkpoint, model or ctranslate2
    facts: further entries of the manifest, read when the block ends
    needed: bytes of its large files, if known: without room for them nothing is begun

    What the block writes need not be synced. Raises ResourceError with the path of `final` for an OSError, and leaves one
    as it is that names a file elsewhere, which the block has read.
    """
    final = final.absolute()
    temporary, filling = final.with_name(f".{final.name}{TEMPORARY_ENDING}"), False
    if temporary.is_symlink():
        raise ResourceError(f"{quoted(temporary)}: is a symbolic link, which nmt does not make (remove it)")
    if needed is not None and _free_bytes(final) < needed:
        raise storage_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), final, needed)
    with Lock(temporary) as lock:
        try:
            for path in temporary.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.name != LOCK:
                    path.unlink()
            filling = True
            yield temporary
            filling = False
            needed = max(needed or 0, _size_of(temporary))
            files = {
                str(path.relative_to(temporary)): {"size": path.stat().st_size, "sha256": sha256(path)}
                for path in sorted(temporary.rglob("*"))
                if path.is_file() and path.name != LOCK
            }
            head = {"format": FORMAT_VERSION, "kind": kind, "program": __version__, "python": platform.python_version()}
            (temporary / MANIFEST).write_bytes(to_json({**head, **facts, "files": files}))
            for path in (*temporary.rglob("*"), temporary):
                if path.name != LOCK:
                    _sync(path)
            _put_in_place(temporary, final)
        except BaseException as error:
            lacks_inodes = isinstance(error, OSError) and _lacks_inodes(final)
            lock.close()
            if needed is None and temporary.exists():
                needed = _size_of(temporary)
            shutil.rmtree(temporary, ignore_errors=True)
            if isinstance(error, OSError) and not (filling and _is_elsewhere(error.filename, temporary)):
                raise storage_error(error, final, needed, lacks_inodes) from error
            raise


def _is_elsewhere(name: Any, folder: Path) -> bool:
    """Whether an OSError names a file that is not in a folder."""
    return isinstance(name, str) and not Path(name).absolute().is_relative_to(folder)


class Artefact:
    """An artefact folder, opened for reading. Opening checks the size of every file, and `path` the sha256 of one."""

    def __init__(self, folder: Path, *kinds: str) -> None:
        """Raises ArtefactError for a folder of another kind, of a newer format, or with a damaged or missing file."""
        self.folder = folder
        self.manifest = _read_manifest(folder, kinds)
        self._checked: set[str] = set()
        for inner in {parent for name in self.manifest["files"] for parent in Path(name).parents[:-1]}:
            _refuse_link(folder / inner)
        for name, facts in self.manifest["files"].items():
            path = folder / name
            _refuse_link(path)
            if not path.is_file():
                raise ArtefactError(f"{quoted(path)}: missing ({REPAIR})")
            if path.stat().st_size != facts["size"]:
                raise ArtefactError(
                    f"{quoted(path)}: damaged: {path.stat().st_size:,} bytes where {facts['size']:,} were written ({REPAIR})"
                )

    def __contains__(self, name: str) -> bool:
        return name in self.manifest["files"]

    def path(self, name: str) -> Path:
        """The path of one of its files, after its sha256 is checked."""
        path = self.unchecked_path(name)
        if name not in self._checked:
            self._check_sum(name, sha256(path))
        return path

    def read(self, name: str) -> bytes:
        """The content of one of its files, whose sha256 is checked."""
        content = read_bytes(self.unchecked_path(name))
        self._check_sum(name, hashlib.sha256(content).hexdigest())
        return content

    def _check_sum(self, name: str, digest: str) -> None:
        if digest != self.manifest["files"][name]["sha256"]:
            raise ArtefactError(
                f"{quoted(self.folder / name)}: damaged: its sha256 is not the one in {MANIFEST} ({REPAIR})"
            )
        self._checked.add(name)

    def unchecked_path(self, name: str) -> Path:
        """The path of one of its files, for a reader that checks what it reads itself."""
        if name not in self:
            raise ArtefactError(f"{quoted(self.folder)}: has no {quoted(name)} (made by another version of nmt?)")
        return self.folder / name

    def json(self, name: str) -> Any:
        """The content of one of its JSON files."""
        return _parsed(self.read(name), self.folder / name)

    def check(self) -> None:
        """Check the sha256 of every file. Raises ArtefactError for a damaged one."""
        for name in self.manifest["files"]:
            self.path(name)


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise ArtefactError(
            f"{quoted(path)}: is a symbolic link, which nmt does not make (`cp -rL` copies what it points to)"
        )


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises ArtefactError for anything else."""
    return _parsed(read_bytes(path), path)


def _parsed(content: bytes, path: Path) -> Any:
    with expecting("valid JSON", path):
        return json.loads(content)


def _read_manifest(folder: Path, kinds: tuple[str, ...]) -> dict[str, Any]:
    expected = " or ".join(KIND_NAMES.get(kind, kind) for kind in kinds)
    if not (folder / MANIFEST).is_file():
        state = f"has no {MANIFEST}" if folder.is_dir() else "is no folder" if folder.exists() else "no such folder"
        state += " (several models: --model A --model B)" if ":" in folder.name and not folder.exists() else ""
        raise ArtefactError(f"{quoted(folder)}: {state}; must be the folder of {expected}")
    _refuse_link(folder / MANIFEST)
    manifest = read_json(folder / MANIFEST)
    if isinstance(manifest, dict) and manifest.get("kind") in kinds and not _is_file_table(manifest.get("files")):
        raise ArtefactError(
            f"{quoted(folder / MANIFEST)}: damaged: `files` must be a table of names with size and sha256 ({REPAIR})"
        )
    if not isinstance(manifest, dict) or manifest.get("kind") not in kinds:
        kind = manifest.get("kind") if isinstance(manifest, dict) else None
        name = KIND_NAMES.get(str(kind), quoted(kind))
        raise ArtefactError(f"{quoted(folder)}: is the folder of {name}; must be that of {expected}")
    if manifest.get("format") != FORMAT_VERSION:
        version = quoted(manifest.get("format"))
        raise OtherFormatError(
            f"{quoted(folder)}: has format {version}, this nmt reads {FORMAT_VERSION} (use the nmt that wrote it)"
        )
    return manifest


def _is_file_table(files: Any) -> bool:
    """Whether `files` is {name: {size, sha256}}, with relative names that stay in the folder."""
    return isinstance(files, dict) and all(
        isinstance(facts, dict)
        and isinstance(facts.get("size"), int)
        and isinstance(facts.get("sha256"), str)
        and not Path(name).is_absolute()
        and ".." not in Path(name).parts
        for name, facts in files.items()
    )
