"""The CTranslate2 export of a model. `nmt translate` creates, checks and caches it when the model is first used.

Exports are kept in the user's cache folder, because nmt never writes to a model folder. `_prune` limits the size of the cache.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from nmt import signals
from nmt.artefact import MANIFEST, REMOVED_ENDING, Artefact
from nmt.errors import (
    ArtefactError,
    LockedError,
    ResourceError,
    is_utf8,
    needing_torch,
    one_line,
    quoted,
    storage_error,
)
from nmt.extensions.ctranslate2 import CTRANSLATE2_KIND
from nmt.extensions.ctranslate2.engine import import_ctranslate2
from nmt.files import TEMPORARY_ENDING, sha256
from nmt.locks import LOCK, Lock, holder_of
from nmt.log import log

CHECKED_LINES: Final = 100  # number of random lines, as in `nmt export`
MAX_EXPORT_SECONDS: Final = 300.0  # maximum time to wait for another process that is making the same export
EXPORT_POLL_SECONDS: Final = 0.2
MAX_CACHE_BYTES: Final = 10 << 30  # total size of the cached exports; enough for ten big Transformers in float32
MAX_UNUSED_SECONDS: Final = 90 * 24 * 3600.0
MAX_ABANDONED_SECONDS: Final = 24 * 3600.0  # older temporary folders are assumed to belong to killed processes


def cached_export(model: Path, quantization: str, shortlist: str | None, threads: int | None) -> Path:
    """Return a folder with the CTranslate2 export of a model: an existing one, or a new one in the cache.

    These places are searched in order: folders of `nmt export` inside the model folder, an export that an earlier version of
    nmt kept next to the model, and the cache.

    model: model folder or checkpoint
    quantization: float32 or int8
    shortlist: file from `nmt shortlist`, which becomes CTranslate2's vocabulary map
    Raises UserError if CTranslate2 cannot run the model, ArtefactError if its translations differ from those of nmt's search,
    ResourceError if there is no cache folder, the disk is full, or another process takes too long to make the export.
    """
    model = model.resolve()
    facts = {
        "made_of": sha256(model / MANIFEST),
        "quantization": quantization,
        "shortlist": sha256(Path(shortlist)) if shortlist is not None else "",
    }
    for folder in _exports_inside(model):
        if _is_of(folder, facts):
            return folder
    facts["ctranslate2"] = import_ctranslate2().__version__
    older = model.parent / f".{model.name}.ctranslate2-{quantization}{'-shortlist' if shortlist is not None else ''}"
    if is_utf8(str(older)) and _is_of(older, facts):
        return older
    digest = f"-shortlist-{facts['shortlist'][:8]}" if shortlist is not None else ""
    folder = _cache() / f"{facts['made_of'][:32]}.ctranslate2-{quantization}{digest}"
    deadline, is_new = time.monotonic() + MAX_EXPORT_SECONDS, False
    with signals.Signals():
        while not _is_of(folder, facts):
            if is_new:
                raise ResourceError(f"{quoted(folder)}: the files differ from what was written (check the disk)")
            try:
                _remove_damaged(folder)
                _export(model, folder, facts, shortlist, threads)
                is_new = True
                with contextlib.suppress(OSError, ArtefactError):  # a later call removes what cannot be removed now
                    _prune(folder, model)
            except LockedError as error:
                if time.monotonic() > deadline:
                    raise ResourceError(str(error)) from None
                signals.check()
                time.sleep(EXPORT_POLL_SECONDS)
    with contextlib.suppress(OSError):  # the cache may be read-only
        os.utime(folder / MANIFEST)  # records when the export was last used
    return folder


def _exports_inside(model: Path) -> Iterator[Path]:
    """The exports that the user has put into a model folder with `nmt export --output MODEL/ctranslate2`."""
    return (path.parent for path in sorted(model.glob(f"*/{MANIFEST}")) if is_utf8(str(path)))


def _cache() -> Path:
    """The cache folder, created if necessary. Raises ResourceError if it cannot be created."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nmt"
        cache.mkdir(parents=True, exist_ok=True)
        if not is_utf8(str(cache.resolve())):  # CTranslate2 cannot open such a path
            raise OSError(f"the name of {quoted(cache)} is not UTF-8")
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home folder
        raise ResourceError(
            f"no cache folder for the CTranslate2 export: {error} (set XDG_CACHE_HOME to a writable folder)"
        ) from None
    return cache


def _prune(new: Path, model: Path) -> None:
    """Remove exports that are no longer needed from the cache after one was added.

    An export is removed if it belongs to an earlier state of the same model folder, if it has not been used for
    MAX_UNUSED_SECONDS, or if it does not fit into MAX_CACHE_BYTES together with the exports that were used more recently.
    Temporary folders that a killed process left behind are removed too.
    """
    made_of, total, now = Artefact(new, CTRANSLATE2_KIND).manifest["made_of"], 0, time.time()
    used = {path: _age(path / MANIFEST, now) for path in new.parent.glob("[!.]*.ctranslate2-*")}
    for export in sorted(used, key=lambda path: used[path]):
        with contextlib.suppress(OSError, ArtefactError):
            manifest = Artefact(export, CTRANSLATE2_KIND).manifest
            num_bytes = sum(entry["size"] for entry in manifest["files"].values())
            is_outdated = manifest.get("model") == one_line(str(model)) and manifest.get("made_of") != made_of
            fits = export == new or total + num_bytes <= MAX_CACHE_BYTES
            if is_outdated or used[export] > MAX_UNUSED_SECONDS or not fits:
                removed = export.with_name(f".{export.name}{REMOVED_ENDING}")
                export.rename(removed)  # other processes see a complete export or none
                shutil.rmtree(removed)
            else:
                total += num_bytes
    for path in new.parent.glob(f".*{TEMPORARY_ENDING}"):
        if _age(path, now) > MAX_ABANDONED_SECONDS and holder_of(path / LOCK) is None:
            shutil.rmtree(path, ignore_errors=True)


def _age(path: Path, now: float) -> float:
    """Seconds since a file or folder was written or touched; 0 if it was removed in the meantime."""
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _is_of(folder: Path, facts: Mapping[str, Any]) -> bool:
    """Whether a folder is a complete export with these facts in its manifest."""
    try:
        export = _checked(folder)
    except ArtefactError:
        return False
    return all(export.manifest.get(name, "") == fact for name, fact in facts.items())


def _checked(folder: Path) -> Artefact:
    """An export whose files were all checked. Raises ArtefactError if it is damaged, ResourceError if it cannot be read."""
    try:
        export = Artefact(folder, CTRANSLATE2_KIND)
        export.check()
    except OSError as error:
        raise ResourceError(f"{quoted(error.filename or folder)} cannot be read: {error.strerror or error}") from None
    return export


def _remove_damaged(folder: Path) -> None:
    """Remove what is in an export's place in the cache, unless it is intact, because a damaged one would never be replaced.

    Raises LockedError if another process is removing it, and ResourceError if it cannot be removed.
    """
    if not os.path.lexists(folder):
        return
    removed = folder.with_name(f".{folder.name}.{os.getpid()}{REMOVED_ENDING}")
    is_folder = folder.is_dir() and not folder.is_symlink()
    with Lock(folder) if is_folder else contextlib.nullcontext():
        try:
            _checked(folder)
        except ArtefactError as error:
            log.warn(f"the cached export for CTranslate2 is damaged, and is made again: {error}")
            try:
                folder.rename(removed)
                shutil.rmtree(removed) if is_folder else removed.unlink()
            except OSError as failure:
                raise storage_error(failure, folder) from failure


def _export(model: Path, folder: Path, facts: Mapping[str, Any], shortlist: str | None, threads: int | None) -> None:
    advice = "run `nmt export --format ctranslate2` on a machine with torch, and use the exported folder as the model"
    with needing_torch(f"{quoted(model)}: there is no CTranslate2 export of this model, and making one", advice):
        import torch

    from nmt.checkpoint import load_model
    from nmt.device import default_threads, use_threads
    from nmt.extensions.ctranslate2.comparison import MAX_DIFFERENT_SHARE, invented_lines
    from nmt.extensions.ctranslate2.export import export_ctranslate2, specification
    from nmt.extensions.searches.shortlist_file import Shortlist

    started = time.monotonic()
    # If CTranslate2 refuses the model, torch searches in forked processes, which would wait forever for threads started here.
    use_threads(1)
    loaded = load_model(model, torch.device("cpu"))
    specification(loaded)
    use_threads(threads or default_threads())
    pipeline = loaded.pipeline
    mapping = Shortlist.load(Path(shortlist), pipeline.hash, pipeline.sizes) if shortlist is not None else None
    lines = invented_lines(pipeline, CHECKED_LINES)
    settings = facts["quantization"], lines, None, threads, mapping
    more_facts = {**facts, "model": one_line(str(model))}
    export_ctranslate2(
        loaded, folder, *settings, more_facts=more_facts, max_different=round(MAX_DIFFERENT_SHARE * len(lines))
    )
    log.info(
        f"{quoted(model)}: exported to CTranslate2 and checked in {time.monotonic() - started:.1f} s; later "
        f"translations reuse {quoted(folder)} (to avoid this, use --engine torch)"
    )
