"""The start of a run with more of a trained model than its weights: the state of the training that made it."""

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

OF_POSITION: Final = ("batch_tokens", "seed")  # settings that give a position in the data its meaning, besides a plan's
WHAT: Final = {
    "optimizer": "the optimizer",
    "schedule": "optimizer and schedule",
    "all": "optimizer, schedule and data",
}


@register("start", "init-state", InitStateOptions)
class InitState(Start):
    """The state of the optimizer, of the schedule, or all of the training that made the model of --init-from."""

    order: ClassVar[int] = 1  # after the weights

    def fit(self, run: Run, trained: TrainedModel) -> None:
        """Take the state into a run, and the weights that training changed where the model's are their average.

        Raises UserError for a state that the folder does not have or that does not fit the run.
        """
        self.flag, self.trained = f"--init-state {self.options.init_state}", trained
        self.averaged = trained.weights
        if run.data.pipeline.sizes != trained.pipeline.sizes:
            data = quoted(run.options.data)
            raise UserError(f"{self.flag}: the vocabulary of {data} has new entries, without a state (leave it out)")
        state = self._fitting_state(run, trained.artefact)
        tensors = read_tensors(trained.artefact.path(TRAINING_TENSORS))
        trained.weights = {**trained.weights, **trained_weights(tensors)}
        self._put_optimizer(run, tensors, state)
        if self.options.init_state != "optimizer":
            self._put_progress(run, state)
        self.note = f", and the state of {WHAT[self.options.init_state]} after update {state.progress.update}"

    def begin(self, run: Run) -> None:
        """See Start; the weights are in the model by now."""
        if run.average is not None:
            weights = {name: self.averaged[name] for name in run.average.weights}
            put_weights(run.average.weights, weights, weights_file(self.trained.artefact))
        run.model.begin_update(run.progress.update)

    def _put_optimizer(self, run: Run, tensors: Mapping[str, Tensor], state: SavedState) -> None:
        """Take the optimizer's state. Raises UserError where it is that of other options, such as of another --momentum."""
        folder = self.trained.artefact.folder
        try:
            put_optimizer_state(run, tensors, state, folder / TRAINING_TENSORS)
        except ArtefactError:
            if rows := _changed_options("optimizer", run, state):
                what = f"{quoted(folder)}: its optimizer has another state than this one's ({listed(rows)}"
                raise UserError(f"{self.flag}: {what}; give the same, or take none of it)") from None
            raise

    def _put_progress(self, run: Run, state: SavedState) -> None:
        """Take the number of the update and the schedule's state; with `all`, also the position in the data."""
        progress, saved = run.progress, state.progress
        progress.update = run.context.update = saved.update
        progress.save_due = False  # of this update; the run has made none yet
        progress.skipped, progress.rollbacks = saved.skipped, saved.rollbacks
        if progress.scale is not None and saved.scale is not None:
            progress.scale = saved.scale
        if not _changed_options("schedule", run, state):
            put_schedule_state(run, state, self.trained.artefact.folder / TRAINING)
        if self.options.init_state == "all":
            progress.position, progress.epoch = saved.position, saved.epoch
            progress.limit = saved.limit  # what was measured decides the last bits
        else:
            progress.position = run.loader.plan.first_position(progress.update)
        if run.end is not None:
            option, reason = run.end
            begin = f"{self.flag} begins after update {progress.update} of {self.trained.artefact.folder}"
            raise UserError(f"{begin}, where this run ends: {reason} (give another {flag_of(option)})")

    def _fitting_state(self, run: Run, artefact: Artefact) -> SavedState:
        """The state of training in a checkpoint. Raises UserError unless it has one, and it fits what is taken of it."""
        folder, takes_all = quoted(artefact.folder), self.options.init_state == "all"
        if TRAINING not in artefact.manifest["files"]:
            raise UserError(
                f"{self.flag}: {folder} is a model folder, without a state (name a run or a checkpoint, or give none)"
            )
        state = SavedState.read(artefact)
        position = [*OF_POSITION, *registry.option_names("plan")] if takes_all else []
        same = ["optimizer", *_parameter_options(), *position]
        both = completed_settings(state.settings, run.settings), run.settings
        rows = changed_settings(*({key: settings.get(key) for key in same} for settings in both))
        if rows:
            raise UserError(
                f"{self.flag}: the settings of {folder} differ ({listed(rows)}; give the same, or take less of its state)"
            )
        if takes_all and state.data != run.data.fingerprint:
            data = quoted(run.options.data)
            raise UserError(f"{self.flag}: {folder} was trained on other data than {data} (give --init-state schedule)")
        return state


def _changed_options(kind: str, run: Run, state: SavedState) -> list[str]:
    """How the part of a kind, and its options, in the settings of a run differ from those of a state; see `changed_settings`."""
    name = run.settings[kind]
    defaults = {kind: name, **registry.completed(kind, name, {})}
    both = [
        {key: settings.get(f"{kind}.{key}", settings.get(key, default)) for key, default in defaults.items()}
        for settings in (state.settings, run.settings)
    ]
    return changed_settings(*both)


def _parameter_options() -> list[str]:
    """The options of all starts that decide which parameters are trained."""
    return [option for entry in registry.every("start") for option in entry.cls.parameter_options]  # type: ignore
