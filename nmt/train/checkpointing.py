"""Checkpoints of a run: writing them, continuing from the newest, and beginning with the weights of another model."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import count
from os.path import normpath
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
from torch import Tensor

from nmt import registry
from nmt.artefact import Artefact, check_writable, new_folder, remove_leftovers, to_json, write_file
from nmt.checkpoint import (
    TRAINING_TENSORS,
    ModelFacts,
    create_optimizer_state,
    flat_optimizer,
    put_optimizer,
    put_weights,
    read_tensors,
    refuse_not_finite,
    weights_of,
    write_model,
    write_tensors,
)
from nmt.dist import full_tensor
from nmt.errors import ArtefactError, ResourceError, UserError, quoted
from nmt.log import log
from nmt.options import options_of
from nmt.runs import TRAINING, WEIGHTS, find_model, update_of
from nmt.text.pipeline import Pipeline
from nmt.train.options import AUTO, TrainOptions
from nmt.train.run import Progress, Run

MAX_FAILED_SAVES: Final = 2  # in a row
MAX_LISTED_SETTINGS: Final = 5  # of those that differ from a checkpoint's


@dataclass(frozen=True, kw_only=True)
class SavedState:
    """The content of training.json: what a checkpoint keeps beside tensors."""

    progress: Progress
    minutes: float
    settings: dict[str, Any]
    data: str
    optimizer: dict[str, Any]
    schedule: dict[str, Any]
    metrics_offset: int

    @classmethod
    def read(cls, checkpoint: Artefact) -> "SavedState":
        """Raises ArtefactError for anything that no run writes."""
        try:
            state = msgspec.convert(_with_current_names(checkpoint.json(TRAINING)), cls)
        except msgspec.ValidationError as error:
            raise ArtefactError(f"{quoted(checkpoint.folder / TRAINING)}: not the state of a run: {error}") from None
        position = state.progress.position
        counts = (state.metrics_offset, position.pairs, state.progress.flops)
        if min(state.progress.update, position.epoch, *(count + 1 for count in counts)) < 1:
            raise ArtefactError(f"{quoted(checkpoint.folder / TRAINING)}: not the state of a run: a count is negative")
        return state


def _with_current_names(state: Any) -> Any:
    """The content of training.json with the fields that version 0.1 lacked, or named differently, at first."""
    progress = state.get("progress") if isinstance(state, dict) else None
    if not isinstance(progress, dict):
        return state
    settings = state.get("settings")
    if isinstance(settings, dict) and "judged_by" not in progress:
        progress = progress | {"judged_by": settings.get("best_by")}
    if isinstance(found := progress.get("found"), dict):
        limit = {{"holds": "max_micro_batch_tokens"}.get(key, key): value for key, value in found.items()}
        progress = {key: value for key, value in progress.items() if key != "found"} | {"limit": limit}
    return {**state, "progress": progress}


def resume(run: Run) -> None:
    """Load the newest whole checkpoint, or else the weights of `--init-from`, into a run. Raises as check_same does."""
    checkpoint = _newest_checkpoint(run)
    if checkpoint is None:
        run.report.cut(0)
        put_initial_weights(run)
        return
    state = SavedState.read(checkpoint)
    check_same(run, checkpoint.folder, state)
    if (by := state.progress.judged_by) not in run.scores:
        missing = f"its best checkpoint is judged by {quoted(by)}, which these settings do not compute"
        raise UserError(f"{quoted(run.folder)}: {missing} (add --config {quoted(run.folder / 'settings.toml')})")
    if (state.progress.scale is None) != (run.progress.scale is None):
        raise ArtefactError(f"{quoted(checkpoint.folder / TRAINING)}: a loss scale belongs to fp16 alone")
    tensors = read_tensors(checkpoint.path(TRAINING_TENSORS))
    if state.progress.update > state.progress.skipped:
        create_optimizer_state(run.optimizer)
    put_optimizer(run.optimizer, tensors, state.optimizer, checkpoint.folder / TRAINING_TENSORS)
    put_weights(run.model, read_tensors(checkpoint.path(WEIGHTS)), checkpoint.folder)
    run.schedule.load_state_dict(state.schedule)
    run.progress, run.saved = state.progress, asdict(state.progress)
    run.settings["best_by"] = state.settings["best_by"]
    run.context.update = run.progress.update
    run.model.begin_update(run.progress.update)
    run.report.cut(state.metrics_offset)
    run.minutes_before, run.started = state.minutes, time.monotonic()


def _newest_checkpoint(run: Run) -> Artefact | None:
    """The newest whole checkpoint, chosen by the leader; damaged ones after it are renamed."""
    checkpoint: Artefact | None = None
    if run.world.leads:
        run.checkpoints.folder.mkdir(parents=True, exist_ok=True)
        check_writable(run.checkpoints.folder)
        remove_leftovers(run.checkpoints.folder)
        checkpoint = run.checkpoints.newest_valid()
        for newer in run.checkpoints.named():  # never to be mistaken for what follows from here
            if checkpoint is not None and update_of(newer) > update_of(checkpoint.folder):
                names = (newer.with_name(f"damaged-{newer.name}{f'.{i}' if i else ''}") for i in count())
                newer.rename(next(name for name in names if not name.exists()))
    name = run.world.gather(checkpoint.folder.name.encode() if checkpoint else b"")[0].decode()
    return checkpoint or (Artefact(run.checkpoints.folder / name, "checkpoint") if name else None)


def check_same(run: Run, folder: Path, state: SavedState) -> None:
    """Raises UserError if options that change the mathematics differ from a checkpoint's, ArtefactError if the data does."""
    new = dict(run.settings)
    old = _completed(state.settings, new)
    if new["best_by"] == AUTO:  # whatever the run was begun with
        new["best_by"] = old.get("best_by")
    models = [
        normpath(Path(given).absolute())
        for settings in (old, new)
        if isinstance(given := settings.get("init_from"), str)
    ]
    if len(models) == 2 and models[0] == models[1]:  # however it is written
        new["init_from"] = old["init_from"]
    if rows := _changes(old, new):
        raise UserError(
            f"{quoted(run.folder)}: its settings differ from those it was trained with ({_listed(rows)}); "
            f"keep them (--config {quoted(run.folder / 'settings.toml')}), or name another --output"
        )
    if state.data != run.data.fingerprint:
        raise ArtefactError(
            f"{quoted(folder)}: was trained on other data than {quoted(run.options.data)} (--data, or another --output)"
        )


def _completed(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Saved settings with the options that nmt has got since, at their defaults, which keep what was before."""
    defaults = {option.name: option.default for option in options_of(TrainOptions)}
    for kind in ("model", "criterion", "optimizer", "schedule"):
        for key, default in registry.completed(kind, new[kind], {}).items():
            defaults |= {key: default, f"{kind}.{key}": default}
    return {key: defaults[key] for key in new.keys() - old.keys() if key in defaults} | dict(old)


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The settings that differ, sorted: "lr: 0.005 -> 0.5"."""
    return [f"{key}: {old.get(key)} -> {new.get(key)}" for key in sorted({*old, *new}) if old.get(key) != new.get(key)]


def _listed(rows: Sequence[str]) -> str:
    """The first rows, and how many more there are."""
    left = len(rows) - MAX_LISTED_SETTINGS
    return "; ".join(rows[:MAX_LISTED_SETTINGS]) + (f" and {left} more" if left > 0 else "")


def put_initial_weights(run: Run) -> None:
    """Copy the weights of `--init-from`, if it is given, into a run that begins.

    Raises ArtefactError for a damaged folder, and for a model of another architecture or vocabulary.
    """
    if run.options.init_from is None:
        return
    chosen = find_model(Path(run.options.init_from))
    folder = Path(run.world.gather(str(chosen).encode())[0].decode())  # the leader's choice: its run may go on
    artefact = Artefact(folder, "model", "checkpoint")
    models, free = (ModelFacts.read(artefact), run.facts), run.model.training_options
    kinds = [{"model": facts.model, "weights": facts.weights} for facts in models]
    options = [{key: facts.options[key] for key in facts.options.keys() - free} for facts in models]
    if rows := _changes(*kinds) or _changes(*options):
        same = "give the same, or leave --init-from out"
        raise ArtefactError(f"{quoted(folder)}: is another model than this run's ({_listed(rows)}; {same})")
    if Pipeline.load(artefact).hash != run.data.pipeline.hash:
        other = f"has another vocabulary or text pipeline than {quoted(run.options.data)}"
        raise ArtefactError(
            f"{quoted(folder)}: {other} (nmt prepare --vocabulary {quoted(folder)} makes data with its own)"
        )
    put_weights(run.model, read_tensors(artefact.path(WEIGHTS)), folder / WEIGHTS)
    run.report.line(f"begins with the weights of {folder}")


def save(run: Run, last: bool) -> None:
    """Write a checkpoint of this update and delete those that are not to be kept.

    A failed save leaves the older checkpoints as they were and is a warning; the third in a row, and a failure of the
    last save, are a ResourceError.
    """
    path = run.checkpoints.path(run.progress.update)
    try:
        if run.saved != asdict(run.progress):
            _write(run, path)
        run.saved, run.failed_saves = asdict(run.progress), 0
    except ResourceError as error:
        run.failed_saves += 1
        if last or run.failed_saves > MAX_FAILED_SAVES:
            raise
        log.warn(f"checkpoint of update {run.progress.update} not saved: {error}")
        return
    if run.world.leads:
        run.checkpoints.prune(run.options.keep_last, run.options.keep_best)


def _write(run: Run, path: Path) -> None:
    """Gather the tensors from all ranks and let the leader write them."""
    tensors, plain = flat_optimizer(run.optimizer)
    weights, tensors = _gathered(run, weights_of(run.model)), _gathered(run, tensors)
    if not run.world.leads:
        return
    refuse_not_finite(weights, path)
    minutes, settings = round(run.minutes, 3), dict(run.settings)
    state = SavedState(
        progress=run.progress,
        minutes=minutes,
        settings=settings,
        data=run.data.fingerprint,
        optimizer=plain,
        schedule=run.schedule.state_dict(),
        metrics_offset=run.report.offset(),
    )
    facts = {
        "update": run.progress.update,
        "minutes": minutes,
        "flops": run.progress.flops,
        "cost_is_measured": run.model.cost_is_measured,
        "settings": sha256(to_json(settings)).hexdigest(),
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "matmul": run.progress.limit.matmul,
        "ranks": run.world.size,
        "data": run.data.fingerprint,
        "vocabulary": run.data.pipeline.hash,
    }
    with new_folder(path, "checkpoint", facts) as folder:
        write_model(folder, weights, run.facts, run.data.pipeline)
        write_tensors(folder / TRAINING_TENSORS, tensors)
        write_file(folder / TRAINING, to_json(asdict(state)))


def _gathered(run: Run, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The full tensors on the leader; sharded ones are gathered one at a time and kept on the CPU."""
    gathered = {}
    for name, tensor in tensors.items():
        full = full_tensor(tensor)
        if run.world.leads:
            gathered[name] = tensor if full is tensor else full.cpu()
    return gathered
