"""Artefacts: folders with a `manifest.json`, which has the size and the sha256 of each of their files.

An artefact is filled under a temporary name next to its final one, and renamed when it is complete
(docs/reference/contract.md).
"""

import contextlib
import errno
import hashlib
import os
import platform
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from nmt.errors import (
    ArtefactError,
    OtherFormatError,
    ResourceError,
    UserError,
    free_bytes,
    lacks_inodes,
    quoted,
    storage_error,
)
from nmt.files import (
    TEMPORARY_ENDING,
    keep_permissions,
    parse_json,
    read_bytes,
    read_json,
    remove_unless_locked,
    sha256,
    sync,
    to_json,
    write_file,
)
from nmt.locks import LOCK, Lock, holder_of
from nmt.log import log
from nmt.version import __version__

FORMAT_VERSION: Final = 1  # of the kinds that NEWER_FORMATS does not name
NEWER_FORMATS: Final = {"prepared-data": 2}  # the newest of a kind; earlier ones are read too
MANIFEST: Final = "manifest.json"
KIND_NAMES: Final = {  # in messages
    "prepared-data": "prepared data (nmt prepare)",
    "checkpoint": "a run or checkpoint (nmt train)",
    "model": "a model (nmt average)",
    "recipe": "a recipe",
}
METRICS: Final = "metrics.jsonl"  # which only a run has
CHECKED: Final = "NMT_CHECKED"  # variable of a rank: the digest of an artefact whose files its launcher has checked
MAX_NAME_BYTES: Final = 255  # of a file, with its folder
REPAIR: Final = "make the folder again, or copy it again"
REPLACED_ENDING: Final = ".replaced.partial"  # of a folder's name while its successor takes its place
REMOVED_ENDING: Final = ".removed.partial"  # of a folder's name while its files are removed


def check_output(folder: Path, kind: str, overwrite: bool) -> None:
    """Raise UserError for an output folder with files, unless it is an artefact of this kind and may be overwritten."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UserError(f"{quoted(folder)}: is not a folder (name another)")
    if folder.exists() and (os.path.ismount(folder) or folder.samefile(Path())):
        place = "a mount point" if os.path.ismount(folder) else "the working directory"
        raise UserError(f"{quoted(folder)}: is {place}, which cannot be replaced (name a folder in it)")
    if not folder.exists() or not any(path.name != LOCK for path in folder.iterdir()):
        if folder.absolute().parent.name == "checkpoints" and (folder.absolute().parents[1] / METRICS).exists():
            raise UserError(f"{quoted(folder)}: is among the checkpoints of a run (name a folder elsewhere)")
        return
    if not (folder / MANIFEST).exists():
        what = "is a run (nmt train)" if (folder / METRICS).exists() else "holds files that nmt did not write"
        raise UserError(f"{quoted(folder)}: {what} (name another folder)")
    if not overwrite:
        raise UserError(f"{quoted(folder)}: already there (name another folder, or give --overwrite)")
    try:
        _read_manifest(folder, (kind,))
    except ArtefactError as error:
        raise UserError(f"{error} (name another folder)") from None


@contextlib.contextmanager
def new_folder(final: Path, kind: str, facts: Mapping[str, Any], needed: int | None = None) -> Iterator[Path]:
    """A temporary folder to fill, which becomes the artefact `final` when the block ends without an error.

    kind: the one that `Artefact` is to expect
    facts: further entries of the manifest, read when the block ends
    needed: bytes of its large files, if known: without room for them nothing is begun

    What the block writes need not be synced. Raises ResourceError with the path of `final` for an OSError, and leaves one
    as it is that names a file elsewhere, which the block has read.
    """
    final = final.absolute()
    temporary, filling = final.with_name(f".{final.name}{TEMPORARY_ENDING}"), False
    if needed is not None and free_bytes(final) < needed:
        raise storage_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), final, needed)
    with _taken(temporary):
        try:
            _empty(temporary)
            keep_permissions(final, temporary)
            filling = True
            yield temporary
            filling = False
            (temporary / MANIFEST).write_bytes(_manifest_of(temporary, kind, facts))
            for path in (*temporary.rglob("*"), temporary):
                if path.name != LOCK:
                    sync(path)
            with _unused(final, kind):
                _put_in_place(temporary, final)
        except BaseException as error:
            no_inode = isinstance(error, OSError) and lacks_inodes(final)
            with contextlib.suppress(OSError):
                needed = max(needed or 0, _size_of(temporary)) or None
                _empty(temporary)  # before the lock ends, and with it the folder
            if isinstance(error, OSError) and not (filling and _is_elsewhere(error.filename, temporary)):
                raise storage_error(error, final, needed, no_inode) from error
            raise


@contextlib.contextmanager
def _taken(temporary: Path) -> Iterator[None]:
    """Make and lock a temporary folder, or take over that of a killed process; an empty one is removed at the end.

    Raises LockedError if another process fills it, and ResourceError for a link and for a folder of somebody else.
    """
    if temporary.is_symlink():
        raise ResourceError(f"{quoted(temporary)}: is a symbolic link, which nmt does not make (remove it)")
    with Lock(temporary) as lock:
        status = temporary.lstat()
        if not lock.owns_folder and (status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH):
            raise ResourceError(f"{quoted(temporary)}: somebody else made it, or may write to it (remove it)")
        lock.owns_folder = True
        yield


@contextlib.contextmanager
def _unused(folder: Path, kind: str) -> Iterator[None]:
    """Lock the folder that is to be replaced, if there is one: a run may have begun in it since it was checked.

    Raises LockedError while one uses it, and UserError if it has become something else. A checkpoint is locked by its run.
    """
    if kind == "checkpoint" or not folder.exists():
        yield
        return
    with Lock(folder):
        try:
            check_output(folder, kind, overwrite=True)
            yield
        except BaseException:
            (folder / LOCK).unlink(missing_ok=True)
            raise


def _empty(folder: Path) -> None:
    """Remove all but the lock from a folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def _manifest_of(folder: Path, kind: str, facts: Mapping[str, Any]) -> bytes:
    """The manifest of the files in a folder."""
    files = {
        str(path.relative_to(folder)): {"size": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != LOCK
    }
    head = {
        "format": NEWER_FORMATS.get(kind, FORMAT_VERSION),
        "kind": kind,
        "program": __version__,
        "python": platform.python_version(),
    }
    return to_json({**head, **facts, "files": files})


def _is_elsewhere(name: Any, folder: Path) -> bool:
    """Whether an OSError names a file that is not in a folder."""
    return isinstance(name, str | os.PathLike) and not Path(name).absolute().is_relative_to(folder)


def _put_in_place(temporary: Path, final: Path) -> None:
    """Rename a complete folder to its final name. The folder it replaces is removed last, or restored on an error."""
    old = final.with_name(f".{final.name}{REPLACED_ENDING}")
    _finish_replacement(old, final)
    if final.exists():
        final.rename(old)
    try:
        temporary.rename(final)
    except BaseException:
        _finish_replacement(old, final)
        raise
    (final / LOCK).unlink()
    sync(final.parent)
    with removing(old):
        _finish_replacement(old, final)


def _finish_replacement(old: Path, final: Path) -> None:
    """Remove a replaced folder, or give it its name back if its successor never got it."""
    if old.is_dir() and not old.is_symlink():
        if final.exists():
            _finish_removal(old, final)
        else:
            old.rename(final)


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
    listed, manifest, remaining = {folder / LOCK}, folder / MANIFEST, list[Path]()
    is_readable = False
    with contextlib.suppress(ArtefactError):
        listed |= {folder / name for name in _read_manifest(folder, ())["files"]}
        is_readable = True
    for path in sorted(folder.rglob("*"), reverse=True):  # what is in a folder comes before it; links are not followed
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # has remaining files
                path.rmdir()
        elif path in listed:
            path.unlink()
        elif path != manifest or not is_readable:
            remaining.append(path)
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


def remove_leftovers(parent: Path) -> None:
    """Remove the temporaries of an interrupted run from a folder whose lock is held."""
    for path in sorted(parent.glob(".*" + TEMPORARY_ENDING)):
        with removing(path):
            if path.is_symlink() or not path.is_dir():
                remove_unless_locked(path)
            elif path.name.endswith(REPLACED_ENDING):
                _finish_replacement(path, parent / path.name[1 : -len(REPLACED_ENDING)])
            elif path.name.endswith(REMOVED_ENDING):
                _finish_removal(path, parent / path.name[1 : -len(REMOVED_ENDING)])
            elif holder_of(path / LOCK) is None:
                shutil.rmtree(path)


def set_fact(artefact: "Artefact", name: str, value: Any) -> None:
    """Set an entry of an artefact's manifest that is not of its files."""
    write_file(artefact.folder / MANIFEST, to_json({**artefact.manifest, name: value}))


class Artefact:
    """An artefact folder, opened for reading. Opening checks the size of every file, and `path` the sha256 of one."""

    def __init__(self, folder: Path, *kinds: str) -> None:
        """Raises ArtefactError for a folder of another kind, of a newer format, or with a damaged or missing file."""
        self.folder = folder
        self.manifest = _read_manifest(folder, kinds)
        self._checked = set(self.manifest["files"] if os.environ.get(CHECKED) == self.digest else ())
        for path in map(Path, self.manifest["files"]):
            for part in (*path.parents[:-1], path):
                _refuse_link(folder / part)
        for name, facts in self.manifest["files"].items():
            path = folder / name
            if not path.is_file():
                raise ArtefactError(f"{quoted(path)}: missing ({REPAIR})")
            if (size := path.stat().st_size) != facts["size"]:
                written = f"{size:,} bytes where {facts['size']:,} were written"
                raise ArtefactError(f"{quoted(path)}: damaged: {written} ({REPAIR})")

    @property
    def digest(self) -> str:
        """A digest of the content of all its files, by the manifest."""
        sums = sorted((name, facts["sha256"]) for name, facts in self.manifest["files"].items())
        return hashlib.sha256(to_json(sums)).hexdigest()

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
        if name not in self.manifest["files"]:
            raise ArtefactError(f"{quoted(self.folder)}: has no {quoted(name)} (made by another version of nmt?)")
        return self.folder / name

    def json(self, name: str) -> Any:
        """The content of one of its JSON files."""
        return parse_json(self.read(name), self.folder / name)

    def check(self) -> None:
        """Check the sha256 of every file. Raises ArtefactError for a damaged one."""
        for name in self.manifest["files"]:
            self.path(name)


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise ArtefactError(
            f"{quoted(path)}: is a symbolic link, which nmt does not make (`cp -rL` copies what it points to)"
        )


def _read_manifest(folder: Path, kinds: tuple[str, ...]) -> dict[str, Any]:
    """The manifest of a folder. kinds: of folders that are accepted; none accepts any"""
    expected = " or ".join(map(_kind_name, kinds))
    if not (folder / MANIFEST).is_file():
        state = f"has no {MANIFEST}" if folder.is_dir() else "is no folder" if folder.exists() else "no such folder"
        state += " (several models: --model A --model B)" if ":" in folder.name and not folder.exists() else ""
        raise ArtefactError(f"{quoted(folder)}: {state}; must be the folder of {expected}")
    _refuse_link(folder / MANIFEST)
    content = read_json(folder / MANIFEST)
    manifest: dict[str, Any] = content if isinstance(content, dict) else {}
    version, kind = manifest.get("format"), manifest.get("kind")
    newest = NEWER_FORMATS.get(str(kind), FORMAT_VERSION)
    if isinstance(version, int) and version not in range(1, newest + 1):  # its other entries may have other meanings
        advice = "use the nmt that wrote it"
        raise OtherFormatError(f"{quoted(folder)}: has format {version}, this nmt reads {newest} ({advice})")
    if kinds and kind not in kinds:
        raise ArtefactError(f"{quoted(folder)}: is the folder of {_kind_name(kind)}; must be that of {expected}")
    if not isinstance(version, int) or not _is_file_table(manifest.get("files")):
        wanted = "must have a format, and in `files` a table of names with size and sha256"
        raise ArtefactError(f"{quoted(folder / MANIFEST)}: damaged: {wanted} ({REPAIR})")
    return manifest


def _kind_name(kind: object) -> str:
    return KIND_NAMES.get(str(kind), f"kind {quoted(kind)}")


def _is_file_table(files: Any) -> bool:
    """Whether `files` is {name: {size, sha256}}, with relative names that stay in the folder and that a disk can hold."""
    return isinstance(files, dict) and all(
        isinstance(facts, dict)
        and isinstance(facts.get("size"), int)
        and isinstance(facts.get("sha256"), str)
        and not Path(name).is_absolute()
        and ".." not in Path(name).parts
        and len(name.encode(errors="surrogatepass")) <= MAX_NAME_BYTES
        for name, facts in files.items()
    )


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
