"""Checkpoints of a run: their content, and resuming from the newest one."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from os.path import normpath
from pathlib import Path
from typing import Any, Final

import msgspec
from torch import Tensor

from nmt import registry
from nmt.artefact import Artefact, remove_leftovers
from nmt.checkpoint import (
    TRAINED_WEIGHTS,
    TRAINING_TENSORS,
    create_optimizer_state,
    put_optimizer,
    put_weights,
    read_tensors,
)
from nmt.errors import ArtefactError, UserError, expecting, quoted
from nmt.files import Count, check_writable
from nmt.options import AUTO, options_of
from nmt.runs import TRAINING, update_of
from nmt.train.options import TrainOptions
from nmt.train.progress import Progress
from nmt.train.run import Run

MAX_LISTED_SETTINGS: Final = 5  # maximum number of settings that an error lists


@dataclass(frozen=True, kw_only=True)
class SavedState:
    """The content of training.json: the state that a checkpoint keeps in addition to its tensors."""

    progress: Progress
    minutes: float
    settings: dict[str, Any]
    data: str
    optimizer: dict[str, Any]
    schedule: dict[str, Any]
    metrics_offset: Count

    @classmethod
    def read(cls, checkpoint: Artefact) -> "SavedState":
        """Read the state from a checkpoint. Raises ArtefactError for content that no run writes."""
        content = _with_current_names(checkpoint.json(TRAINING))
        with expecting("the state of a run", checkpoint.folder / TRAINING):
            return msgspec.convert(content, cls)


def _with_current_names(state: Any) -> Any:
    """Add or rename the fields of training.json that early builds of version 0.1 lacked or named differently."""
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


def resume(run: Run) -> bool:
    """Load the newest undamaged checkpoint into a run, and return whether there is one. Raises the errors of check_same."""
    checkpoint = _newest_checkpoint(run)
    if checkpoint is None:
        run.report.truncate(0)
        return False
    state = SavedState.read(checkpoint)
    check_same(run, checkpoint.folder, state)
    if (by := state.progress.judged_by) not in run.scores:
        missing = f"the run selects its best checkpoint by {quoted(by)}, which these settings do not compute"
        raise UserError(f"{quoted(run.folder)}: {missing} (add --config {quoted(run.folder / 'settings.toml')})")
    if (state.progress.scale is None) != (run.progress.scale is None):
        raise ArtefactError(
            f"{quoted(checkpoint.folder / TRAINING)}: contains {'no' if state.progress.scale is None else 'a'} loss scale, "
            f"but this run uses --precision {run.options.precision}"
        )
    put_state(run, checkpoint, state)
    run.report.truncate(state.metrics_offset)
    run.minutes_before, run.started = state.minutes, time.monotonic()
    return True


def put_state(run: Run, checkpoint: Artefact, state: SavedState) -> None:
    """Restore the weights, their average, the optimizer, the schedule and the progress from a checkpoint.

    Raises ArtefactError if the checkpoint is damaged.
    """
    tensors = read_tensors(checkpoint.path(TRAINING_TENSORS))
    trained = trained_weights(tensors) if run.average is not None else {}
    put_optimizer_state(run, tensors, state, checkpoint.folder / TRAINING_TENSORS)
    run.kept.restore(run.model, run.evaluated_weights(), checkpoint)
    if run.average is not None:
        put_weights(run.average.parameters, trained, checkpoint.folder / TRAINING_TENSORS)
    put_schedule_state(run, state, checkpoint.folder / TRAINING)
    run.progress, run.saved = state.progress, asdict(state.progress)
    run.settings["best_by"] = state.settings.get("best_by", AUTO)
    run.context.update = run.progress.update
    run.model.begin_update(run.progress.update)


def trained_weights(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Take the trained weights out of a checkpoint's training tensors, if the saved model is their average."""
    names = [name for name in tensors if name.startswith(TRAINED_WEIGHTS)]
    return {name.removeprefix(TRAINED_WEIGHTS): tensors.pop(name) for name in names}


def put_optimizer_state(run: Run, tensors: Mapping[str, Tensor], state: SavedState, place: Path) -> None:
    """Restore the optimizer's state from a checkpoint. The caller then overwrites the weights.

    place: the file with the tensors, for messages
    Raises ArtefactError if the state belongs to a different optimizer or to different parameters.
    """
    groups = run.optimizer.state_dict()["param_groups"]
    run.optimizer.load_state_dict({"state": {}, "param_groups": groups})  # reset to the state before the first update
    parameters = [parameter for group in run.optimizer.param_groups for parameter in group["params"]]
    # The indices of the parameters that have a state. A parameter without a gradient has none.
    saved = {key.partition(".")[0] for key in (*tensors, *state.optimizer)}
    if saved or state.progress.update > state.progress.skipped:
        with_state = [parameter for number, parameter in enumerate(parameters) if str(number) in saved]
        create_optimizer_state(run.optimizer, with_state or parameters)
    put_optimizer(run.optimizer, tensors, state.optimizer, place)


def put_schedule_state(run: Run, state: SavedState, place: Path) -> None:
    """Restore the schedule's state from a checkpoint.

    place: the file with the state, for messages
    Raises ArtefactError if the state belongs to a different schedule.
    """
    with expecting("a state of this schedule", place):
        run.schedule.load_state_dict(state.schedule)


def _newest_checkpoint(run: Run) -> Artefact | None:
    """Find the newest undamaged checkpoint, on the leader, which also renames any newer (damaged) ones."""
    checkpoint: Artefact | None = None
    if run.world.leads:
        run.checkpoints.folder.mkdir(parents=True, exist_ok=True)
        check_writable(run.checkpoints.folder)
        remove_leftovers(run.checkpoints.folder)
        checkpoint = run.checkpoints.newest_valid()
        if checkpoint is not None:
            set_newer_aside(run, checkpoint.folder, "damaged")
    return choice_of_leader(run, checkpoint)


def set_newer_aside(run: Run, folder: Path, prefix: str) -> None:
    """Rename the checkpoints newer than `folder` to PREFIX-update-N."""
    for newer in run.checkpoints.named():
        if update_of(newer) > update_of(folder):
            names = (newer.with_name(f"{prefix}-{newer.name}{f'.{i}' if i else ''}") for i in count())
            newer.rename(next(name for name in names if not name.exists()))


def choice_of_leader(run: Run, checkpoint: Artefact | None) -> Artefact | None:
    """Return the leader's checkpoint on every rank."""
    name = run.world.gather(checkpoint.folder.name.encode() if checkpoint else b"")[0].decode()
    return checkpoint or (Artefact(run.checkpoints.folder / name, "checkpoint") if name else None)


def check_same(run: Run, folder: Path, state: SavedState) -> None:
    """Raise ArtefactError if the data differs from a checkpoint's, or UserError if an option that must stay the same differs."""
    if state.data != run.data.fingerprint:
        raise ArtefactError(
            f"{quoted(folder)}: trained on data that differs from {quoted(run.options.data)} (use the "
            "original --data, or a new --output)"
        )
    new = dict(run.settings)
    old = completed_settings(state.settings, new)
    # Keep the values that auto chose at the start of the run.
    new |= {key: old.get(key) for key, value in new.items() if value == AUTO}
    models = [
        normpath(Path(given).absolute())
        for settings in (old, new)
        if isinstance(given := settings.get("init_from"), str)
    ]
    if len(models) == 2 and models[0] == models[1]:  # the same path, spelled differently
        new["init_from"] = old["init_from"]
    if rows := changed_settings(old, new):
        raise UserError(
            f"{quoted(run.folder)}: the settings differ from those of the run ({listed(rows)}); "
            f"use the run's settings (--config {quoted(run.folder / 'settings.toml')}), or choose a new --output"
        )


def completed_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Add the settings that an older checkpoint does not contain: options with their default values, and digests."""
    options = options_of(TrainOptions)
    defaults = {option.name: [] if option.default == () else option.default for option in options}  # in JSON's types
    for kind in ("model", "criterion", "optimizer", "schedule"):
        for key, default in registry.completed(kind, new[kind], {}).items():
            defaults |= {key: default, f"{kind}.{key}": default}
    defaults |= {key: new[key] for key in new if key.endswith("_sha256")}
    lists = {key: _words(value) for key, value in new.items() if _words(value) is not None}
    same_words = {key: new[key] for key, words in lists.items() if _words(old.get(key)) == words}
    old = {**old, **same_words}  # the same words, divided differently between arguments
    return {key: defaults[key] for key in new.keys() - old.keys() if key in defaults} | dict(old)


def _words(value: Any) -> list[str] | None:
    """The words of a list of texts; None for anything else."""
    is_texts = isinstance(value, list) and all(isinstance(text, str) for text in value)
    return " ".join(value).split() if is_texts else None


def changed_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """List in sorted order the settings that differ, such as "lr: 0.005 -> 0.5"."""
    return [f"{key}: {old.get(key)} -> {new.get(key)}" for key in sorted({*old, *new}) if old.get(key) != new.get(key)]


def listed(rows: Sequence[str]) -> str:
    """Join the first rows, and say how many more there are."""
    left = len(rows) - MAX_LISTED_SETTINGS
    return "; ".join(rows[:MAX_LISTED_SETTINGS]) + (f" and {left} more" if left > 0 else "")
