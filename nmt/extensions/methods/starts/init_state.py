"""Starts a run with the training state of another run, in addition to its weights."""

from collections.abc import Mapping
from typing import ClassVar, Final

from torch import Tensor

from nmt import register, registry
from nmt.artefact import Artefact
from nmt.checkpoint import TRAINING_TENSORS, put_weights, read_tensors
from nmt.errors import ArtefactError, UserError, quoted
from nmt.extensions.methods.starts.options import InitStateOptions
from nmt.options import flag_of
from nmt.runs import TRAINING, weights_file
from nmt.starts.base import Start, TrainedModel
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
)  # settings that determine a position in the data, besides those of the plan
WHAT: Final = {
    "optimizer": "the optimizer",
    "schedule": "optimizer and schedule",
    "all": "optimizer, schedule and data",
}


@register("start", "init-state", InitStateOptions)
class InitState(Start):
    """Loads the --init-from model's training state: the optimizer, the optimizer and the schedule, or everything."""

    order: ClassVar[int] = 1  # loaded after the weights

    def fit(self, run: Run, trained: TrainedModel) -> None:
        """Load the state into a run. If the model's weights are an average, also load the weights that were trained.

        Raises UserError if the folder has no state, or if the state does not fit the run.
        """
        self.flag, self.trained = f"--init-state {self.options.init_state}", trained
        self.averaged = trained.weights
        if run.data.pipeline.sizes != trained.pipeline.sizes:
            data = quoted(run.options.data)
            raise UserError(
                f"{self.flag}: the vocabulary of {data} has new entries, for which there is no state (drop --init-state)"
            )
        state = self._fitting_state(run, trained.artefact)
        tensors = read_tensors(trained.artefact.path(TRAINING_TENSORS))
        trained.weights = {**trained.weights, **trained_weights(tensors)}
        self._put_optimizer(run, tensors, state)
        if self.options.init_state != "optimizer":
            self._put_progress(run, state)
        self.note = f", and the state of {WHAT[self.options.init_state]} after update {state.progress.update}"

    def begin(self, run: Run) -> None:
        """See Start. The model already has its weights."""
        if run.average is not None:
            weights = {name: self.averaged[name] for name in run.average.weights}
            put_weights(run.average.weights, weights, weights_file(self.trained.artefact))
        run.model.begin_update(run.progress.update)

    def _put_optimizer(self, run: Run, tensors: Mapping[str, Tensor], state: SavedState) -> None:
        """Load the optimizer's state. Raises UserError if it was saved with different options, such as another --momentum."""
        folder = self.trained.artefact.folder
        try:
            put_optimizer_state(run, tensors, state, folder / TRAINING_TENSORS)
        except ArtefactError:
            if rows := _changed_options("optimizer", run, state):
                what = f"{quoted(folder)}: the optimizer state does not fit this run ({listed(rows)}"
                raise UserError(f"{self.flag}: {what}; use the same settings, or drop --init-state)") from None
            raise

    def _put_progress(self, run: Run, state: SavedState) -> None:
        """Load the update number and the schedule's state; with `all`, also the position in the data."""
        progress, saved = run.progress, state.progress
        progress.update = run.context.update = saved.update
        progress.save_due = False  # this run has not made an update to save yet
        progress.skipped, progress.rollbacks = saved.skipped, saved.rollbacks
        if progress.scale is not None and saved.scale is not None:
            progress.scale = saved.scale
        if not _changed_options("schedule", run, state):
            put_schedule_state(run, state, self.trained.artefact.folder / TRAINING)
        if self.options.init_state == "all":
            progress.position, progress.epoch = saved.position, saved.epoch
            progress.limit = saved.limit  # the limits were measured, and affect the last bits of results
        else:
            progress.position = run.loader.plan.first_position(progress.update)
        if run.end is not None:
            option, reason = run.end
            begin = f"{self.flag} starts after update {progress.update} of {self.trained.artefact.folder}"
            raise UserError(f"{begin}, where this run already ends: {reason} (raise {flag_of(option)})")

    def _fitting_state(self, run: Run, artefact: Artefact) -> SavedState:
        """The state of training in a checkpoint. Raises UserError if it has none, or if it does not fit the run."""
        folder, takes_all = quoted(artefact.folder), self.options.init_state == "all"
        if TRAINING not in artefact.manifest["files"]:
            raise UserError(
                f"{self.flag}: {folder} has no training state (use a run or checkpoint, or drop --init-state)"
            )
        state = SavedState.read(artefact)
        position = [*OF_POSITION, *registry.option_names("plan")] if takes_all else []
        same = ["optimizer", *_parameter_options(), *position]
        both = completed_settings(state.settings, run.settings), run.settings
        rows = changed_settings(*({key: settings.get(key) for key in same} for settings in both))
        if rows:
            raise UserError(
                f"{self.flag}: the settings of {folder} differ ({listed(rows)}; use the same settings, or load less of the state)"
            )
        if takes_all and state.data != run.data.fingerprint:
            data = quoted(run.options.data)
            raise UserError(
                f"{self.flag}: {folder} was trained on different data than {data} (use --init-state schedule)"
            )
        return state


def _changed_options(kind: str, run: Run, state: SavedState) -> list[str]:
    """How the component of a kind and its options differ between a run and a state; see `changed_settings`."""
    name = run.settings[kind]
    defaults = {kind: name, **registry.completed(kind, name, {})}
    both = [
        {key: settings.get(f"{kind}.{key}", settings.get(key, default)) for key, default in defaults.items()}
        for settings in (state.settings, run.settings)
    ]
    return changed_settings(*both)


def _parameter_options() -> list[str]:
    """The options of starts that determine which parameters are trained."""
    return [option for entry in registry.every("start") for option in entry.cls.parameter_options]  # type: ignore
