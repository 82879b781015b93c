"""The export for CTranslate2 that `nmt translate` makes of a model at its first use, checks, and keeps for later.

It is kept in the user's cache folder, so that a model folder is never written to. The cache stays bounded: see `_prune`.
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
from nmt.errors import ArtefactError, LockedError, ResourceError, is_utf8, needing_torch, one_line, quoted
from nmt.extensions.ctranslate2 import CTRANSLATE2_KIND
from nmt.extensions.ctranslate2.engine import import_ctranslate2
from nmt.files import TEMPORARY_ENDING, sha256
from nmt.locks import LOCK, holder_of
from nmt.log import log

CHECKED_LINES: Final = 100  # invented, as in `nmt export`
MAX_EXPORT_SECONDS: Final = 300.0  # for another process that makes the same export
EXPORT_POLL_SECONDS: Final = 0.2
MAX_CACHE_BYTES: Final = 10 << 30  # of all exports in the cache: ten big Transformers in float32
MAX_UNUSED_SECONDS: Final = 90 * 24 * 3600.0
MAX_ABANDONED_SECONDS: Final = 24 * 3600.0  # of a temporary folder, whose process was killed


def cached_export(model: Path, quantization: str, shortlist: str | None, threads: int | None) -> Path:
    """The folder of a model for CTranslate2: an export of this model that exists, or a new one in the cache.

    The first of these is used: a folder of `nmt export` inside the model folder, an export that an earlier version of nmt
    kept next to the model, the cache.

    model: model folder or checkpoint
    quantization: float32 or int8
    shortlist: file of `nmt shortlist`, for CTranslate2's map of the vocabulary
    Raises UserError for a model that CTranslate2 cannot run, ArtefactError if its translations differ from our own search's,
    ResourceError without a cache folder or with a full disk, and if another process takes too long to make the export.
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
    beside = model.parent / f".{model.name}.ctranslate2-{quantization}{'-shortlist' if shortlist is not None else ''}"
    if is_utf8(str(beside)) and _is_of(beside, facts):
        return beside
    digest = f"-shortlist-{facts['shortlist'][:8]}" if shortlist is not None else ""
    folder = _cache() / f"{facts['made_of'][:32]}.ctranslate2-{quantization}{digest}"
    deadline = time.monotonic() + MAX_EXPORT_SECONDS
    with signals.Signals():
        while not _is_of(folder, facts):
            try:
                _export(model, folder, facts, shortlist, threads)
                with contextlib.suppress(OSError, ArtefactError):  # what could not be removed now is removed later
                    _prune(folder, model)
            except LockedError as error:
                if time.monotonic() > deadline:
                    raise ResourceError(str(error)) from None
                signals.check()
                time.sleep(EXPORT_POLL_SECONDS)
    with contextlib.suppress(OSError):  # of a cache that can only be read
        os.utime(folder / MANIFEST)  # when it was last used
    return folder


def _exports_inside(model: Path) -> Iterator[Path]:
    """The folders for CTranslate2 that a person has put into a model folder, by `nmt export --output MODEL/ctranslate2`."""
    return (path.parent for path in sorted(model.glob(f"*/{MANIFEST}")) if is_utf8(str(path)))


def _cache() -> Path:
    """The folder for caches, made if need be. Raises ResourceError if there can be none."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nmt"
        cache.mkdir(parents=True, exist_ok=True)
        if not is_utf8(str(cache.resolve())):  # CTranslate2 opens no such path
            raise OSError(f"the name of {quoted(cache)} is not UTF-8")
    except (OSError, RuntimeError) as error:  # the latter for a user without a home
        raise ResourceError(
            f"no cache folder for the CTranslate2 export: {error} (set XDG_CACHE_HOME to a folder that you can write to)"
        ) from None
    return cache


def _prune(new: Path, model: Path) -> None:
    """Remove from the cache what is no longer needed, after an export was added.

    An export goes if it is of an earlier state of the same model folder, if nothing has used it for MAX_UNUSED_SECONDS, or
    if it does not fit into MAX_CACHE_BYTES with those used later. What a killed writer of an export left behind goes too.
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
                export.rename(removed)  # another process sees it whole or not at all
                shutil.rmtree(removed)
            else:
                total += num_bytes
    for path in new.parent.glob(f".*{TEMPORARY_ENDING}"):
        if _age(path, now) > MAX_ABANDONED_SECONDS and holder_of(path / LOCK) is None:
            shutil.rmtree(path, ignore_errors=True)


def _age(path: Path, now: float) -> float:
    """The seconds since a file or folder was written or touched; none for one that was removed meanwhile."""
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _is_of(folder: Path, facts: Mapping[str, Any]) -> bool:
    """Whether a folder is a whole export with these facts."""
    try:
        export = Artefact(folder, CTRANSLATE2_KIND)
        export.check()
    except ArtefactError:
        return False
    return all(export.manifest.get(name, "") == fact for name, fact in facts.items())


def _export(model: Path, folder: Path, facts: Mapping[str, Any], shortlist: str | None, threads: int | None) -> None:
    advice = "run `nmt export --format ctranslate2` where torch is installed, and use its folder as the model"
    with needing_torch(f"{quoted(model)}: there is no export for CTranslate2, and making one", advice):
        import torch

    from nmt.checkpoint import load_model
    from nmt.device import default_threads, use_threads
    from nmt.extensions.ctranslate2.comparison import MAX_DIFFERENT_SHARE, invented_lines
    from nmt.extensions.ctranslate2.export import export_ctranslate2, specification
    from nmt.extensions.searches.shortlist_file import Shortlist

    began = time.monotonic()
    # A model that is refused is searched in processes that are forked, and would wait for ever for threads started here.
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
        f"{quoted(model)}: exported for CTranslate2, made and checked once, in {time.monotonic() - began:.1f} s: later "
        f"translations use {quoted(folder)} (--engine torch does without)"
    )
