"""Files and folders that appear whole or not at all, and that are checked before they are believed.

An artefact is a folder with a `manifest.json` that names each of its files with size and sha256. It is filled under a
temporary name beside its final one and renamed when it is complete (docs/contract.md, rules 8-10 and 18).
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import platform
import shutil
import socket
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from nmt.errors import ArtefactError, LockedError, ResourceError, UserError, quoted
from nmt.version import __version__

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
LOCK: Final = ".lock"
REPLACED: Final = ".replaced.partial"  # ends the name of a folder while its successor takes its place


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            _sync_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    _sync_folder(folder)


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def storage_error(error: OSError, path: Path, needed: int | None = None) -> ResourceError:
    """An OSError while writing `path`, with what was needed and what is free (bytes)."""
    message = f"{quoted(path)}: cannot be written: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        place = next((parent for parent in (path, *path.parents) if parent.exists()), Path())
        free = shutil.disk_usage(place).free
        wanted = f"at least {needed:,} bytes needed, " if needed is not None else ""
        message += f" ({wanted}{free:,} free; make room or name another folder)"
    return ResourceError(message)


@contextlib.contextmanager
def new_file(path: Path, needed: int | None = None) -> Iterator[BinaryIO]:
    """A file to write, whole or not at all: temporary name, fsync, rename when the block ends, fsync of the folder.

    needed: bytes that are to be written, where that is known
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise storage_error(error, path, needed) from error
        raise


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    with new_file(path, len(data)) as file:
        file.write(data)


def check_named(path: Path, endings: Collection[str], what: str) -> None:
    """UserError unless the name of a file to write has one of these endings, and its folder is there.

    what: how the message begins, such as "a graph is drawn"
    """
    if path.suffix.lower() not in endings:
        raise UserError(f"{quoted(path)}: {what} into a file whose name ends with {', '.join(endings)}")
    if not path.parent.is_dir():
        raise UserError(f"{quoted(path)}: there is no folder {quoted(path.parent)}")


def to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


class Lock:
    """An exclusive `lockf` on `.lock` in a folder, held until closed or until the process ends.

    lockf and not flock: a flock is inherited by children, so orphans of a killed run would keep it.
    A folder that was made for it, and into which nothing else came, leaves with it.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._made = folder / LOCK, not folder.exists()
        self._file = self._locked()
        while not self._is_there():  # who held it before took it away between our opening and our locking it
            self._file.close()
            self._file = self._locked()
        self._file.truncate(0)
        self._file.write(f"{socket.gethostname()} pid {os.getpid()}".encode())
        self._file.flush()

    def _locked(self) -> BinaryIO:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = self._path.open("a+b")
        except OSError as error:
            raise storage_error(error, self._path) from error
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = quoted(file.read(200).decode(errors="replace").strip() or "unknown")
            file.close()
            raise LockedError(f"{quoted(self._path.parent)}: in use by {holder} (wait for it, or end it)") from None
        return file

    def _is_there(self) -> bool:
        """Whether the file of that name is the one that is locked."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        if self._file.closed:
            return
        if self._made and self._is_there() and [path.name for path in self._path.parent.glob("*")] == [LOCK]:
            self._path.unlink()
            self._path.parent.rmdir()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def remove(folder: Path) -> None:
    """Remove a folder so that no half of it is ever seen under its name; links are removed, never followed."""
    if folder.is_symlink():
        folder.unlink()
        return
    if not folder.exists():
        return
    if folder.name.endswith(".partial"):
        shutil.rmtree(folder)
        return
    away = folder.with_name(f".{folder.name}.removed.partial")
    remove(away)
    folder.rename(away)
    shutil.rmtree(away)


def _put_in_place(temporary: Path, final: Path) -> None:
    """Rename a complete folder to its final name; what stands there is deleted when that is durable, or comes back."""
    old = final.with_name(f".{final.name}{REPLACED}")
    remove(old)
    if final.exists():
        final.rename(old)
    try:
        temporary.rename(final)
    except BaseException:
        if old.exists():
            old.rename(final)
        raise
    (final / LOCK).unlink()
    _sync_folder(final.parent)
    remove(old)


def sweep(parent: Path) -> None:
    """Remove temporaries that an interrupted run left in a folder; call it only while the folder's lock is held."""
    for old in parent.glob(".*" + REPLACED):
        final = parent / old.name[1 : -len(REPLACED)]
        if not final.exists():  # stopped between the two renames of a replacement: what was there still is
            old.rename(final)
    for path in parent.glob(".*.partial"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def check_output(folder: Path, overwrite: bool) -> None:
    """Refuse an output folder that holds something, unless it may be overwritten and is an artefact."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UserError(f"{quoted(folder)}: is not a folder (name another one)")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / MANIFEST).exists():
        raise UserError(f"{quoted(folder)}: holds files that nmt did not write (name another folder)")
    if not overwrite:
        raise UserError(f"{quoted(folder)}: already there (name another folder, or give --overwrite)")


@contextlib.contextmanager
def new_folder(final: Path, kind: str, facts: Mapping[str, Any]) -> Iterator[Path]:
    """A temporary folder to fill, which becomes the artefact `final` when the block ends without an error.

    kind: "prepared-data", "checkpoint", "model" or "ctranslate2"
    facts: what the manifest tells beside the files; may still be filled in while the block runs
    """
    final = final.absolute()
    temporary = final.with_name(f".{final.name}.partial")
    needed = None
    with Lock(temporary) as lock:
        try:
            for left in temporary.iterdir():
                if left.name != LOCK:
                    shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
            yield temporary
            needed = _size_of(temporary)
            write_file(temporary / MANIFEST, to_json(_manifest(temporary, kind, facts)))
            _sync_tree(temporary)
            _put_in_place(temporary, final)
        except BaseException as error:
            lock.close()
            if needed is None and temporary.exists():
                needed = _size_of(temporary)
            shutil.rmtree(temporary, ignore_errors=True)
            if isinstance(error, OSError):
                raise storage_error(error, final, needed) from error
            raise


def _manifest(folder: Path, kind: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    files = {
        str(path.relative_to(folder)): {"size": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != LOCK
    }
    return {
        "format": FORMAT,
        "kind": kind,
        "program": __version__,
        "python": platform.python_version(),
        **facts,
        "files": files,
    }


class Artefact:
    """An artefact folder, opened for reading: its manifest is read and every file's size checked.

    path: gives a file of it after checking its sha256.
    """

    def __init__(self, folder: Path, *kinds: str) -> None:
        """Raises ArtefactError when the folder is none of `kinds`, is damaged, or is of a newer format."""
        self.folder = folder
        self.manifest = _read_manifest(folder, kinds)
        self._checked: set[str] = set()
        for name, facts in self.manifest["files"].items():
            path = folder / name
            if path.is_symlink() or not path.is_file():
                raise ArtefactError(f"{quoted(path)}: missing (the folder is damaged; make or copy it again)")
            if path.stat().st_size != facts["size"]:
                raise ArtefactError(
                    f"{quoted(path)}: {path.stat().st_size:,} bytes where {facts['size']:,} were written"
                )

    def __contains__(self, name: str) -> bool:
        return name in self.manifest["files"]

    def path(self, name: str) -> Path:
        """The path of one of its files, checked to hold the very bytes that were written."""
        path = self.unchecked_path(name)
        if name not in self._checked:
            if sha256(path) != self.manifest["files"][name]["sha256"]:
                raise ArtefactError(f"{quoted(path)}: damaged: its sha256 is not the one in {MANIFEST}")
            self._checked.add(name)
        return path

    def unchecked_path(self, name: str) -> Path:
        """The path of one of its files, of which only the size was looked at: who reads it checks what is read."""
        if name not in self:
            raise ArtefactError(f"{quoted(self.folder)}: has no {quoted(name)} (made by another version of nmt?)")
        return self.folder / name

    def json(self, name: str) -> Any:
        return read_json(self.path(name))

    def check(self) -> None:
        """Check every file."""
        for name in self.manifest["files"]:
            self.path(name)


def read_json(path: Path) -> Any:
    """A JSON file; ArtefactError when it is not one."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"{quoted(path)}: not valid JSON: {error}") from None


def _read_manifest(folder: Path, kinds: tuple[str, ...]) -> dict[str, Any]:
    wanted = " or ".join(kinds)
    if not (folder / MANIFEST).is_file():
        state = "is not complete or is not one" if folder.exists() else "is not there"
        raise ArtefactError(f"{quoted(folder)}: {state}; wanted a folder of kind {wanted}")
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("kind") not in kinds or not _is_file_table(manifest.get("files")):
        found = manifest.get("kind") if isinstance(manifest, dict) else None
        raise ArtefactError(f"{quoted(folder)}: is of kind '{quoted(found)}'; wanted {wanted}")
    if manifest.get("format") != FORMAT:
        raise ArtefactError(
            f"{quoted(folder)}: has format {quoted(manifest.get('format'))}, this nmt reads {FORMAT} (use the nmt that wrote it)"
        )
    return manifest


def _is_file_table(files: Any) -> bool:
    """Whether `files` is {plain relative name: {size, sha256}}; a name that leaves the folder is hostile."""
    return isinstance(files, dict) and all(
        isinstance(facts, dict)
        and isinstance(facts.get("size"), int)
        and isinstance(facts.get("sha256"), str)
        and not Path(name).is_absolute()
        and ".." not in Path(name).parts
        for name, facts in files.items()
    )
