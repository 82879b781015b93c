"""Artefacts: folders with a `manifest.json` that contains the size and sha256 of each file.

An artefact is written under a temporary name next to its final name, and renamed when it is complete
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

FORMAT_VERSION: Final = 1  # the format of kinds that NEWER_FORMATS does not list
NEWER_FORMATS: Final = {"prepared-data": 2}  # newest format of each kind; earlier formats are also read
MANIFEST: Final = "manifest.json"
KIND_NAMES: Final = {  # what messages call each kind
    "prepared-data": "a data folder (nmt prepare)",
    "checkpoint": "a run or checkpoint (nmt train)",
    "model": "a model folder (nmt average)",
    "recipe": "a recipe folder",
}
METRICS: Final = "metrics.jsonl"  # a file that only run folders contain
CHECKED: Final = "NMT_CHECKED"  # environment variable: digest of the artefact that the launcher checked for its ranks
MAX_NAME_BYTES: Final = 255  # maximum length of a file name, including its subfolder
REPAIR: Final = "create the folder again, or copy it again"
REPLACED_ENDING: Final = ".replaced.partial"  # suffix of a folder's name while it is being replaced
REMOVED_ENDING: Final = ".removed.partial"  # suffix of a folder's name while its files are being removed
_NEW: Final = set[Path]()  # output folders that were empty when they were checked; later content is not replaced


def check_output(folder: Path, kind: str, overwrite: bool) -> None:
    """Raise UserError if an output folder is not empty, unless it is an artefact of this kind and may be overwritten."""
    _NEW.discard(folder.absolute())
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UserError(f"{quoted(folder)} exists, but is not a folder (choose another name)")
    if folder.exists() and (os.path.ismount(folder) or folder.samefile(Path())):
        place = "a mount point" if os.path.ismount(folder) else "the working directory"
        raise UserError(f"{quoted(folder)} is {place}, which cannot be replaced (choose a folder inside it)")
    if not folder.exists() or not any(path.name != LOCK for path in folder.iterdir()):
        if folder.absolute().parent.name == "checkpoints" and (folder.absolute().parents[1] / METRICS).exists():
            raise UserError(f"{quoted(folder)} is inside a run's checkpoints folder (choose a folder elsewhere)")
        if not overwrite:
            _NEW.add(folder.absolute())
        return
    if not (folder / MANIFEST).exists():
        what = "contains a run of nmt train" if (folder / METRICS).exists() else "contains files that nmt did not write"
        raise UserError(f"{quoted(folder)} {what} (choose another folder)")
    if not overwrite:
        raise UserError(f"{quoted(folder)} already exists (choose another folder, or add --overwrite)")
    try:
        _read_manifest(folder, (kind,))
    except ArtefactError as error:
        raise UserError(f"{error}; choose another folder") from None


@contextlib.contextmanager
def new_folder(final: Path, kind: str, facts: Mapping[str, Any], needed: int | None = None) -> Iterator[Path]:
    """Create a temporary folder to fill. It becomes the artefact `final` if the block ends without an error.

    kind: kind of artefact, which `Artefact` checks when it opens the folder
    facts: additional entries of the manifest, read when the block ends
    needed: disk space in bytes for its large files, if known; if less is free, an error is raised immediately

    The block need not sync what it writes. An OSError becomes a ResourceError with the path of `final`, unless it names a file
    that the block was reading from outside the folder.
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
                _empty(temporary)  # empty it now, so that releasing the lock removes the folder
            if isinstance(error, OSError) and not (filling and _is_elsewhere(error.filename, temporary)):
                raise storage_error(error, final, needed, no_inode) from error
            raise


@contextlib.contextmanager
def _taken(temporary: Path) -> Iterator[None]:
    """Create and lock a temporary folder, or take over one that a killed process left behind. If it ends up empty, it is removed.

    Raises LockedError if another process is filling it, and ResourceError if it is a link or belongs to another user.
    """
    if temporary.is_symlink():
        raise ResourceError(f"{quoted(temporary)} is a symbolic link, which nmt never creates (remove it)")
    with Lock(temporary) as lock:
        status = temporary.lstat()
        if not lock.owns_folder and (status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH):
            raise ResourceError(f"{quoted(temporary)} belongs to another user or is writable by others (remove it)")
        lock.owns_folder = True
        yield


@contextlib.contextmanager
def _unused(folder: Path, kind: str) -> Iterator[None]:
    """Lock the folder to be replaced, if there is one, because a run may have started in it since the first check.

    Raises LockedError if it is in use, and UserError if it may no longer be replaced. A checkpoint is locked by its run.
    """
    if kind == "checkpoint" or not folder.exists():
        yield
        return
    with Lock(folder):
        try:
            check_output(folder, kind, overwrite=folder not in _NEW)
            yield
        except BaseException:
            (folder / LOCK).unlink(missing_ok=True)
            raise


def _empty(folder: Path) -> None:
    """Remove everything but the lock from a folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def _manifest_of(folder: Path, kind: str, facts: Mapping[str, Any]) -> bytes:
    """Create the manifest for the files in a folder."""
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
    """Whether an OSError names a file outside a folder."""
    return isinstance(name, str | os.PathLike) and not Path(name).absolute().is_relative_to(folder)


def _put_in_place(temporary: Path, final: Path) -> None:
    """Rename a complete folder to its final name. The replaced folder is removed last, or restored after an error."""
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
    """Remove a replaced folder, or rename it back if no new folder has taken its name."""
    if old.is_dir() and not old.is_symlink():
        if final.exists():
            _finish_removal(old, final)
        else:
            old.rename(final)


def remove_artefact(folder: Path) -> None:
    """Remove an artefact: first rename it, then remove its files. A link to an artefact is removed, but not followed.

    Files that its manifest does not list are kept under the folder's name, with a warning. Raises NotADirectoryError for a file.
    """
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if folder.is_symlink():
        folder.unlink()
    else:
        _finish_removal(folder.rename(folder.with_name(f".{folder.name}{REMOVED_ENDING}")), folder)


def _finish_removal(removed: Path, name: Path) -> None:
    """Remove the files that a manifest lists. Other files stay in `name`, or are moved into a new folder of that name."""
    if not (remaining := _remove_listed(removed)):
        return
    shown = ", ".join(quoted(path.relative_to(removed)) for path in remaining)
    log.warn(f"files in {quoted(name)} that nmt did not write were kept: {shown}")
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
    """Remove the files that a folder's manifest lists, then the manifest and empty folders. Returns the remaining files."""
    listed, manifest, remaining = {folder / LOCK}, folder / MANIFEST, list[Path]()
    is_readable = False
    with contextlib.suppress(ArtefactError):
        listed |= {folder / name for name in _read_manifest(folder, ())["files"]}
        is_readable = True
    for path in sorted(folder.rglob("*"), reverse=True):  # visits the content of each folder before the folder itself
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # the folder still contains files
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
    """Turn an error while removing something into a warning, because the actual work is already done."""
    try:
        yield
    except OSError as error:
        log.warn(f"{quoted(path)} cannot be removed: {error.strerror or error} (remove it yourself)")


def remove_leftovers(parent: Path) -> None:
    """Remove temporary files of an interrupted run from a folder. The caller holds the folder's lock."""
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
    """Set an entry other than `files` in an artefact's manifest."""
    write_file(artefact.folder / MANIFEST, to_json({**artefact.manifest, name: value}))


class Artefact:
    """An artefact folder, opened for reading. Opening checks the size of every file; `path` checks the sha256 of a file."""

    def __init__(self, folder: Path, *kinds: str) -> None:
        """Raises ArtefactError for a different kind of folder, a newer format, or a damaged or missing file."""
        self.folder = folder
        self.manifest = _read_manifest(folder, kinds)
        self._checked = set(self.manifest["files"] if os.environ.get(CHECKED) == self.digest else ())
        for path in map(Path, self.manifest["files"]):
            for part in (*path.parents[:-1], path):
                _refuse_link(folder / part)
        for name, facts in self.manifest["files"].items():
            path = folder / name
            if not path.is_file():
                raise ArtefactError(f"{quoted(path)} is missing ({REPAIR})")
            if (size := path.stat().st_size) != facts["size"]:
                sizes = f"it has {size:,} bytes instead of {facts['size']:,}"
                raise ArtefactError(f"{quoted(path)} is damaged: {sizes} ({REPAIR})")

    @property
    def digest(self) -> str:
        """A digest of the content of all files, computed from the manifest."""
        sums = sorted((name, facts["sha256"]) for name, facts in self.manifest["files"].items())
        return hashlib.sha256(to_json(sums)).hexdigest()

    def path(self, name: str) -> Path:
        """The path of a file, after checking its sha256."""
        path = self.unchecked_path(name)
        if name not in self._checked:
            self._check_sum(name, sha256(path))
        return path

    def read(self, name: str) -> bytes:
        """The content of a file, after checking its sha256."""
        content = read_bytes(self.unchecked_path(name))
        self._check_sum(name, hashlib.sha256(content).hexdigest())
        return content

    def _check_sum(self, name: str, digest: str) -> None:
        if digest != self.manifest["files"][name]["sha256"]:
            raise ArtefactError(
                f"{quoted(self.folder / name)} is damaged: its sha256 differs from the one in {MANIFEST} ({REPAIR})"
            )
        self._checked.add(name)

    def unchecked_path(self, name: str) -> Path:
        """The path of a file, for readers that check its content themselves."""
        if name not in self.manifest["files"]:
            raise ArtefactError(f"{quoted(self.folder)} has no {quoted(name)} (was it made by another version of nmt?)")
        return self.folder / name

    def json(self, name: str) -> Any:
        """The content of a JSON file."""
        return parse_json(self.read(name), self.folder / name)

    def check(self) -> None:
        """Check the sha256 of every file. Raises ArtefactError for a damaged file."""
        for name in self.manifest["files"]:
            self.path(name)


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise ArtefactError(
            f"{quoted(path)} is a symbolic link, which nmt never creates (copy the folder with `cp -rL`, which follows links)"
        )


def _read_manifest(folder: Path, kinds: tuple[str, ...]) -> dict[str, Any]:
    """Read the manifest of a folder. kinds: accepted kinds; if empty, all are accepted"""
    expected = " or ".join(map(_kind_name, kinds))
    if not (folder / MANIFEST).is_file():
        state = f"no {MANIFEST} found" if folder.is_dir() else "not a folder" if folder.exists() else "no such folder"
        state += " (for several models, use --model A --model B)" if ":" in folder.name and not folder.exists() else ""
        raise ArtefactError(f"{quoted(folder)}: {state}; expected {expected}")
    _refuse_link(folder / MANIFEST)
    content = read_json(folder / MANIFEST)
    manifest: dict[str, Any] = content if isinstance(content, dict) else {}
    version, kind = manifest.get("format"), manifest.get("kind")
    newest = NEWER_FORMATS.get(str(kind), FORMAT_VERSION)
    if isinstance(version, int) and version not in range(1, newest + 1):  # other formats may define entries differently
        advice = "use the version of nmt that wrote it"
        raise OtherFormatError(f"{quoted(folder)} has format {version}; this version reads up to {newest} ({advice})")
    if kinds and kind not in kinds:
        raise ArtefactError(f"{quoted(folder)} is {_kind_name(kind)}; expected {expected}")
    if not isinstance(version, int) or not _is_file_table(manifest.get("files")):
        wanted = "it needs a format, and a table `files` with the size and sha256 of each file"
        raise ArtefactError(f"{quoted(folder / MANIFEST)} is damaged: {wanted} ({REPAIR})")
    return manifest


def _kind_name(kind: object) -> str:
    return KIND_NAMES.get(str(kind), f"a folder of kind {quoted(kind)}")


def _is_file_table(files: Any) -> bool:
    """Whether `files` is {name: {size, sha256}}, with relative names that stay inside the folder and are not too long."""
    return isinstance(files, dict) and all(
        isinstance(facts, dict)
        and isinstance(facts.get("size"), int)
        and isinstance(facts.get("sha256"), str)
        and not Path(name).is_absolute()
        and ".." not in Path(name).parts
        and name == str(Path(name)) != "."  # one spelling per file, so that no file is listed twice
        and len(name.encode(errors="surrogatepass")) <= MAX_NAME_BYTES
        for name, facts in files.items()
    )


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
