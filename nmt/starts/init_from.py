"""The start of a run with a trained model: its weights and, if asked for, the state of the training that made it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from torch import Tensor

from nmt import register, registry
from nmt.artefact import Artefact
from nmt.checkpoint import TRAINING_TENSORS, put_weights, read_tensors, read_weights, weights_of
from nmt.errors import ArtefactError, UserError, quoted
from nmt.models.saved import ModelFacts
from nmt.options import flag_of
from nmt.runs import TRAINING, find_model, weights_file
from nmt.starts.base import Start, TrainedModel
from nmt.starts.options import InitFromOptions
from nmt.text.pipeline import Pipeline
from nmt.train.checkpointing import (
    SavedState,
    changed_settings,
    completed_settings,
    listed,
    put_optimizer_state,
    put_schedule_state,
    trained_weights,
)
from nmt.train.run import Run

OF_POSITION: Final = (
    "batch_tokens",
    "seed",
)  # settings that give a position in the data its meaning, besides those of plans


@register("start", "init-from", InitFromOptions)
class InitFrom(Start):
    """The weights of a trained model and, if asked for, the state of the training that made it."""

    gives_weights: ClassVar[bool] = True

    def begin(self, run: Run) -> None:
        """Begin a run with what `--init-from` and `--init-state` name; other starts make the weights fit.

        Raises ArtefactError for a damaged folder, and for a model of another architecture or vocabulary; UserError for a
        state that the folder does not have or that does not fit the run.
        """
        chosen = find_model(Path(self.options.init_from))
        folder = Path(os.fsdecode(run.world.gather(os.fsencode(chosen))[0]))  # the leader's choice: its run may go on
        artefact = Artefact(folder, "model", "checkpoint")
        _check_architecture(run, artefact)
        pipeline = Pipeline.load(artefact)
        starts = [*_fitting_starts(run, artefact, pipeline), *run.starts]
        run.kept.begin(artefact)
        weights: Mapping[str, Tensor] = read_weights(artefact)
        if self.options.init_state != "none":
            _take_state(run, artefact, weights)
            return
        trained = TrainedModel(artefact, ModelFacts.read(artefact), pipeline, weights, run.base_weights())
        for start in starts:
            start.fit(run, trained)
        put_weights(trained.targets, trained.weights, weights_file(artefact))
        if run.average is not None:
            run.average.restart()
        run.report.line(f"begins with the weights of {folder}{''.join(start.note for start in starts)}")


def _take_state(run: Run, artefact: Artefact, weights: Mapping[str, Tensor]) -> None:
    """Begin a run with the weights of a checkpoint, and what `--init-state` names of its training; see `begin`."""
    folder, place, taken = artefact.folder, weights_file(artefact), _options(run).init_state
    state = _fitting_state(run, artefact)
    tensors = read_tensors(artefact.path(TRAINING_TENSORS))
    trained = trained_weights(tensors)
    _put_optimizer(run, tensors, state, folder)
    put_weights(weights_of(run.model), {**weights, **trained}, place)
    if run.average is not None:
        put_weights(run.average.weights, {name: weights[name] for name in run.average.weights}, place)
    progress = run.progress
    if taken != "optimizer":
        progress.update = run.context.update = state.progress.update
        progress.save_due = False  # of this update; the run has made none yet
        progress.skipped, progress.rollbacks = state.progress.skipped, state.progress.rollbacks
        if progress.scale is not None and state.progress.scale is not None:
            progress.scale = state.progress.scale
        if not _changed_options("schedule", run, state):
            put_schedule_state(run, state, folder / TRAINING)
    if taken == "all":
        progress.position, progress.epoch = state.progress.position, state.progress.epoch
        progress.limit = state.progress.limit  # what was measured decides the last bits
    elif taken == "schedule":
        progress.position = run.loader.plan.first_position(progress.update)
    if run.end is not None:
        option, reason = run.end
        begin = f"--init-state {taken} begins after update {progress.update} of {folder}, where this run ends"
        raise UserError(f"{begin}: {reason} (give another {flag_of(option)})")
    run.model.begin_update(progress.update)
    what = {"optimizer": "the optimizer", "schedule": "optimizer and schedule", "all": "optimizer, schedule and data"}
    run.report.line(
        f"begins with the weights of {folder}, and the state of {what[taken]} after update {state.progress.update}"
    )


def _position_options() -> list[str]:
    """The settings that give a position in the data its meaning."""
    return [*OF_POSITION, *registry.option_names("plan")]


def _put_optimizer(run: Run, tensors: Mapping[str, Tensor], state: SavedState, folder: Path) -> None:
    """Take the optimizer's state. Raises UserError where it is that of other options, such as of another --momentum."""
    try:
        put_optimizer_state(run, tensors, state, folder / TRAINING_TENSORS)
    except ArtefactError:
        if rows := _changed_options("optimizer", run, state):
            what = f"{quoted(folder)}: its optimizer has another state than this one's ({listed(rows)}"
            raise UserError(
                f"--init-state {_options(run).init_state}: {what}; give the same, or take none of it)"
            ) from None
        raise


def _changed_options(kind: str, run: Run, state: SavedState) -> list[str]:
    """How the part of a kind, and its options, in the settings of a run differ from those of a state; see `changed_settings`."""
    name = run.settings[kind]
    defaults = {kind: name, **registry.completed(kind, name, {})}
    both = [
        {key: settings.get(f"{kind}.{key}", settings.get(key, default)) for key, default in defaults.items()}
        for settings in (state.settings, run.settings)
    ]
    return changed_settings(*both)


def _check_architecture(run: Run, artefact: Artefact) -> None:
    """Raise ArtefactError unless a model has the architecture of the run's."""
    models, free = (ModelFacts.read(artefact), run.facts), run.model.training_options
    free = free.union(*(start.free_options for start in run.starts))
    kinds = [{"model": facts.model, "weights": facts.weights} for facts in models]
    options = [{key: facts.options[key] for key in facts.options.keys() - free} for facts in models]
    if rows := changed_settings(*kinds) or changed_settings(*options):
        same = "give the same, or leave --init-from out"
        raise ArtefactError(f"{quoted(artefact.folder)}: is another model than this run's ({listed(rows)}; {same})")


def _fitting_starts(run: Run, artefact: Artefact, pipeline: Pipeline) -> list[Start]:
    """The start that makes the weights for a text pipeline fit that of the run; none if they are the same.

    Raises ArtefactError where no start can, and UserError for a state of weights that change.
    """
    new, data = run.data.pipeline, quoted(run.options.data)
    if pipeline.hash == new.hash:
        return []
    fitting: list[Any] = [e.cls for e in registry.every("start") if e.cls.fits_pipeline(new, pipeline)]  # type: ignore
    if not fitting:
        folder = quoted(artefact.folder)
        ways = [
            f"nmt prepare --vocabulary {folder} makes data with its own",
            *registry.declared("start", "fitting_data"),
        ]
        raise ArtefactError(f"{folder}: has another vocabulary or text pipeline than {data} ({', and '.join(ways)})")
    if new.sizes != pipeline.sizes and (taken := _options(run).init_state) != "none":
        raise UserError(
            f"--init-state {taken}: the vocabulary of {data} has new entries, without a state (leave it out)"
        )
    return [fitting[0](run.options)]


def _options(run: Run) -> InitFromOptions:
    """The options of a run, which are also those of this start."""
    options: Any = run.options
    assert isinstance(options, InitFromOptions)
    return options


def _parameter_options() -> list[str]:
    """The options of all starts that decide which parameters are trained."""
    return [option for entry in registry.every("start") for option in entry.cls.parameter_options]  # type: ignore


def _fitting_state(run: Run, artefact: Artefact) -> SavedState:
    """The state of training in a checkpoint. Raises UserError unless it has one, and it fits what is taken of it."""
    options, folder = _options(run), quoted(artefact.folder)
    flag = f"--init-state {options.init_state}"
    if TRAINING not in artefact.manifest["files"]:
        raise UserError(
            f"{flag}: {folder} is a model folder, without a state (name a run or a checkpoint, or give none)"
        )
    state = SavedState.read(artefact)
    same = ["optimizer", *_parameter_options(), *(_position_options() if options.init_state == "all" else ())]
    both = completed_settings(state.settings, run.settings), run.settings
    rows = changed_settings(*({key: settings.get(key) for key in same} for settings in both))
    if rows:
        raise UserError(
            f"{flag}: the settings of {folder} differ ({listed(rows)}; give the same, or take less of its state)"
        )
    if options.init_state == "all" and state.data != run.data.fingerprint:
        raise UserError(
            f"{flag}: {folder} was trained on other data than {quoted(run.options.data)} (give --init-state schedule)"
        )
    return state
