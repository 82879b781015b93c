"""The beginning of a run with a trained model: its weights and, if asked for, the state of the training that made it."""

from pathlib import Path

from nmt.artefact import Artefact
from nmt.checkpoint import TRAINING_TENSORS, ModelFacts, put_weights, read_tensors, weights_of
from nmt.errors import ArtefactError, UserError, quoted
from nmt.runs import TRAINING, WEIGHTS, find_model
from nmt.text.pipeline import Pipeline
from nmt.train.checkpointing import SavedState, changed_settings, listed, put_optimizer_state, trained_weights
from nmt.train.run import Run


def begin(run: Run) -> None:
    """Begin a run with what `--init-from` and `--init-state` name, if they are given.

    Raises ArtefactError for a damaged folder, and for a model of another architecture or vocabulary; UserError for a state
    that the folder does not have or that does not fit the run.
    """
    if run.options.init_from is None:
        return
    chosen = find_model(Path(run.options.init_from))
    folder = Path(run.world.gather(str(chosen).encode())[0].decode())  # the leader's choice: its run may go on
    artefact = Artefact(folder, "model", "checkpoint")
    _check_same_model(run, artefact)
    weights, taken = read_tensors(artefact.path(WEIGHTS)), run.options.init_state
    if taken == "none":
        put_weights(weights_of(run.model), weights, folder / WEIGHTS)
        if run.average is not None:
            run.average.restart()
        run.report.line(f"begins with the weights of {folder}")
        return
    state = _fitting_state(run, artefact)
    tensors = read_tensors(artefact.path(TRAINING_TENSORS))
    trained = trained_weights(tensors)
    put_optimizer_state(run, tensors, state, folder / TRAINING_TENSORS)
    put_weights(weights_of(run.model), weights | trained, folder)
    if run.average is not None:
        run.average.restart()
        put_weights(run.average.weights, {name: weights[name] for name in run.average.weights}, folder / WEIGHTS)
    progress = run.progress
    if taken != "optimizer":
        progress.update = run.context.update = state.progress.update
        if state.settings.get("schedule") == run.settings["schedule"]:
            run.schedule.load_state_dict(state.schedule)
    if taken == "all":
        progress.position, progress.epoch = state.progress.position, state.progress.epoch
    run.model.begin_update(progress.update)
    what = {"optimizer": "the optimizer", "schedule": "optimizer and schedule", "all": "optimizer, schedule and data"}
    run.report.line(
        f"begins with the weights of {folder}, and the state of {what[taken]} after update {state.progress.update}"
    )


def _check_same_model(run: Run, artefact: Artefact) -> None:
    """Raise ArtefactError unless a model has the architecture and the text pipeline of the run's."""
    models, free = (ModelFacts.read(artefact), run.facts), run.model.training_options
    kinds = [{"model": facts.model, "weights": facts.weights} for facts in models]
    options = [{key: facts.options[key] for key in facts.options.keys() - free} for facts in models]
    if rows := changed_settings(*kinds) or changed_settings(*options):
        same = "give the same, or leave --init-from out"
        raise ArtefactError(f"{quoted(artefact.folder)}: is another model than this run's ({listed(rows)}; {same})")
    if Pipeline.load(artefact).hash != run.data.pipeline.hash:
        other = f"has another vocabulary or text pipeline than {quoted(run.options.data)}"
        raise ArtefactError(
            f"{quoted(artefact.folder)}: {other} (nmt prepare --vocabulary {quoted(artefact.folder)} makes data with its own)"
        )


def _fitting_state(run: Run, artefact: Artefact) -> SavedState:
    """The state of training in a checkpoint. Raises UserError unless it has one, and it fits what is taken of it."""
    options, folder = run.options, quoted(artefact.folder)
    flag = f"--init-state {options.init_state}"
    if TRAINING not in artefact.manifest["files"]:
        raise UserError(
            f"{flag}: {folder} is a model folder, without a state (name a run or a checkpoint, or give none)"
        )
    state = SavedState.read(artefact)
    same = ["optimizer", *(("batch_tokens", "seed") if options.init_state == "all" else ())]
    rows = changed_settings(*({key: settings.get(key) for key in same} for settings in (state.settings, run.settings)))
    if rows:
        raise UserError(
            f"{flag}: the settings of {folder} differ ({listed(rows)}; give the same, or take less of its state)"
        )
    if options.init_state == "all" and state.data != run.data.fingerprint:
        raise UserError(
            f"{flag}: {folder} was trained on other data than {quoted(options.data)} (give --init-state schedule)"
        )
    return state
