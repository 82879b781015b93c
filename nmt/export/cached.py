"""The export for CTranslate2 that `nmt translate` makes of a model at its first use, checked, and keeps for the next."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nmt.artefact import MANIFEST, Artefact
from nmt.errors import ArtefactError, LockedError, ResourceError, is_utf8, needing_torch, quoted
from nmt.files import sha256
from nmt.log import log
from nmt.signals import Signals
from nmt.translate.ctranslate2_engine import CTRANSLATE2_KIND, import_ctranslate2

CHECKED_LINES: Final = 100  # invented, as in `nmt export`
MAX_EXPORT_SECONDS: Final = 300.0  # for another process that makes the same export
EXPORT_POLL_SECONDS: Final = 0.2


def cached_export(model: Path, quantization: str, shortlist: str | None, threads: int | None) -> Path:
    """The folder of a model for CTranslate2: the one that is kept, if it is of this model, else a new one.

    It is kept beside the model, or in the user's folder for caches where that folder cannot be written.

    model: model folder or checkpoint
    quantization: float32 or int8
    shortlist: file of `nmt shortlist`, for CTranslate2's map of the vocabulary
    Raises UserError for a model that CTranslate2 cannot run, ArtefactError if it translates otherwise than we do,
    ResourceError for a full disk, and while another process makes the export for too long.
    """
    facts = {
        "made_of": sha256(model / MANIFEST),
        "ctranslate2": import_ctranslate2().__version__,
        "quantization": quantization,
        "shortlist": sha256(Path(shortlist)) if shortlist is not None else "",
    }
    try:
        folder = _place(model, quantization + ("-shortlist" if shortlist is not None else ""), facts["made_of"])
        folder.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # the latter for a user without a home
        raise ResourceError(f"no folder for the model for CTranslate2: {error} (XDG_CACHE_HOME names one)") from None
    deadline = time.monotonic() + MAX_EXPORT_SECONDS
    with Signals() as signals:
        while not _is_of(folder, facts):
            try:
                _export(model, folder, facts, shortlist, threads, signals)
            except LockedError as error:
                if time.monotonic() > deadline:
                    raise ResourceError(str(error)) from None
                signals.check()
                time.sleep(EXPORT_POLL_SECONDS)
    return folder


def _place(model: Path, name: str, digest: str) -> Path:
    """Where an export is kept. digest: of the model's manifest; CTranslate2 opens no path that is not UTF-8"""
    model = model.resolve()
    is_of_run = model.parent.name == "checkpoints"  # which removes its checkpoints
    if os.access(model.parent, os.W_OK) and is_utf8(str(model)) and not is_of_run:
        return model.parent / f".{model.name}.ctranslate2-{name}"
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "nmt" / f"{digest[:32]}.ctranslate2-{name}"


def _is_of(folder: Path, facts: Mapping[str, Any]) -> bool:
    """Whether a folder is a whole export with these facts."""
    try:
        export = Artefact(folder, CTRANSLATE2_KIND)
        export.check()
    except ArtefactError:
        return False
    return all(export.manifest.get(name) == fact for name, fact in facts.items())


def _export(
    model: Path, folder: Path, facts: Mapping[str, Any], shortlist: str | None, threads: int | None, signals: Signals
) -> None:
    advice = "run `nmt export --format ctranslate2` where torch is installed, and use its folder as the model"
    with needing_torch(f"{quoted(model)}: there is no export for CTranslate2, and making one", advice):
        import torch

    from nmt.checkpoint import load_model
    from nmt.data.shortlist import Shortlist
    from nmt.device import default_threads, use_threads
    from nmt.export.comparison import MAX_DIFFERENT_SHARE, invented_lines
    from nmt.export.ctranslate2 import export_ctranslate2, specification

    began = time.monotonic()
    # A model that is refused is searched in processes that are forked, and would wait for ever for threads started here.
    use_threads(1)
    loaded = load_model(model, torch.device("cpu"))
    specification(loaded)
    use_threads(threads or default_threads())
    pipeline = loaded.pipeline
    mapping = Shortlist.load(Path(shortlist), pipeline.hash, pipeline.sizes) if shortlist is not None else None
    lines = invented_lines(pipeline, CHECKED_LINES)
    settings = facts["quantization"], lines, None, threads, signals.check, mapping
    export_ctranslate2(
        loaded, folder, *settings, more_facts=facts, max_different=round(MAX_DIFFERENT_SHARE * len(lines))
    )
    seconds = f"{time.monotonic() - began:.1f} s"
    log.info(
        f"{quoted(folder)}: the model for CTranslate2, made and checked once, in {seconds} (--engine own: without)"
    )
