"""The beginning of a run with a trained model: its weights and, if asked for, the state of the training that made it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from nmt import registry
from nmt.artefact import Artefact
from nmt.checkpoint import (
    TRAINING_TENSORS,
    AdapterBase,
    NoRandomWeights,
    build_model,
    put_weights,
    read_tensors,
    read_weights,
    weights_of,
)
from nmt.data.loader import Position
from nmt.errors import ArtefactError, UserError, quoted
from nmt.extensions.vocabularies.extension import is_extension, parts_of_new_entries
from nmt.models.saved import ModelFacts, Vocabularies
from nmt.options import flag_of
from nmt.runs import TRAINING, find_model, weights_file
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

GAIN: Final = "parametrizations.weight.original0"  # ending of the names of a weight that is a gain times a direction
DIRECTION: Final = "parametrizations.weight.original1"
DEPTHS: Final = ("encoder_layers", "decoder_layers", "layers")  # options that count layers
OF_POSITION: Final = ("batch_tokens", "data_weights", "seed")  # settings that give a position in the data its meaning


def begin(run: Run) -> None:
    """Begin a run with what `--init-from`, `--init-state` and `--deepen` name, if they are given.

    Raises ArtefactError for a damaged folder, and for a model of another architecture or vocabulary; UserError for a state
    that the folder does not have or that does not fit the run.
    """
    if run.options.init_from is None:
        return
    chosen = find_model(Path(run.options.init_from))
    folder = Path(os.fsdecode(run.world.gather(os.fsencode(chosen))[0]))  # the leader's choice: its run may go on
    artefact = Artefact(folder, "model", "checkpoint")
    old = _fitting_pipeline(run, artefact)
    if run.lora_scale is not None:
        run.adapter_base = AdapterBase.of(artefact, run.lora_scale)
    weights: Mapping[str, Tensor] = read_weights(artefact)
    if run.options.init_state != "none":
        _take_state(run, artefact, weights)
        return
    if old is not None:
        weights = extended_weights(weights, run.facts, run.data.pipeline, old, folder)
    own = deepened_weights(run, artefact) if run.options.deepen else run.base_weights()
    put_weights(own, weights, weights_file(artefact))
    if run.average is not None:
        run.average.restart()
    further = "; the further layers change nothing at first" if run.options.deepen else ""
    run.report.line(f"begins with the weights of {folder}{further}")


def _take_state(run: Run, artefact: Artefact, weights: Mapping[str, Tensor]) -> None:
    """Begin a run with the weights of a checkpoint, and what `--init-state` names of its training; see `begin`."""
    folder, place, taken = artefact.folder, weights_file(artefact), run.options.init_state
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
    elif taken == "schedule" and run.loader.mixture is not None:
        progress.position = Position(part=run.loader.mixture.first_part(progress.update))
    if run.end is not None:
        option, reason = run.end
        begin = f"--init-state {taken} begins after update {progress.update} of {folder}, where this run ends"
        raise UserError(f"{begin}: {reason} (give another {flag_of(option)})")
    run.model.begin_update(progress.update)
    what = {"optimizer": "the optimizer", "schedule": "optimizer and schedule", "all": "optimizer, schedule and data"}
    run.report.line(
        f"begins with the weights of {folder}, and the state of {what[taken]} after update {state.progress.update}"
    )


def _put_optimizer(run: Run, tensors: Mapping[str, Tensor], state: SavedState, folder: Path) -> None:
    """Take the optimizer's state. Raises UserError where it is that of other options, such as of another --momentum."""
    try:
        put_optimizer_state(run, tensors, state, folder / TRAINING_TENSORS)
    except ArtefactError:
        if rows := _changed_options("optimizer", run, state):
            what = f"{quoted(folder)}: its optimizer has another state than this one's ({listed(rows)}"
            raise UserError(
                f"--init-state {run.options.init_state}: {what}; give the same, or take none of it)"
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


def _fitting_pipeline(run: Run, artefact: Artefact) -> Pipeline | None:
    """A model's text pipeline if that of the run extends it; None if they are the same.

    Raises ArtefactError unless the model has the architecture of the run's, and a pipeline that fits.
    """
    models, free = (ModelFacts.read(artefact), run.facts), run.model.training_options
    if run.options.deepen:
        free = free.union(DEPTHS)
    kinds = [{"model": facts.model, "weights": facts.weights} for facts in models]
    options = [{key: facts.options[key] for key in facts.options.keys() - free} for facts in models]
    if rows := changed_settings(*kinds) or changed_settings(*options):
        same = "give the same, or leave --init-from out"
        raise ArtefactError(f"{quoted(artefact.folder)}: is another model than this run's ({listed(rows)}; {same})")
    pipeline, data = Pipeline.load(artefact), quoted(run.options.data)
    if pipeline.hash == run.data.pipeline.hash:
        return None
    if not is_extension(run.data.pipeline, pipeline):
        raise ArtefactError(
            f"{quoted(artefact.folder)}: has another vocabulary or text pipeline than {data} (nmt prepare --vocabulary "
            f"{quoted(artefact.folder)} makes data with its own, and --extend adds entries to it)"
        )
    if pipeline.sizes == run.data.pipeline.sizes:  # it reads another number of sentences as context
        return None
    if run.lora_scale is not None:
        raise UserError(
            f"--lora-rank: the vocabulary of {data} has new entries, which adapters cannot learn (leave it out)"
        )
    if (taken := run.options.init_state) != "none":
        raise UserError(
            f"--init-state {taken}: the vocabulary of {data} has new entries, without a state (leave it out)"
        )
    return pipeline


def deepened_weights(run: Run, artefact: Artefact) -> dict[str, Tensor]:
    """The weights of a run that a model with fewer layers has too. The further layers end in zeros from then on.

    x + f(x) is x where f ends in zeros, so that the run's network gives the outputs of the model, to the bit.
    Raises UserError if the model does not have fewer layers, or a layer that ends in zeros would change the outputs.
    """
    if not run.model.residual_outputs:
        raise UserError(
            f"--deepen: a further layer would change the outputs of this run's model, {run.facts.model} (a Transformer needs "
            "--norm-position pre, self-attention and layers that are not tied)"
        )
    old = ModelFacts.read(artefact)
    numbers = [[facts.options[key] for key in DEPTHS if key in facts.options] for facts in (old, run.facts)]
    if numbers[0] == numbers[1] or any(before > now for before, now in zip(*numbers, strict=True)):
        how = "give more layers, or leave it out"
        raise UserError(f"--deepen: {quoted(artefact.folder)} does not have fewer layers than this run's model ({how})")
    own = run.base_weights()
    with NoRandomWeights():
        kept = _shapes(old, artefact.folder).keys()
    for name in own.keys() - kept:
        if any(fnmatchcase(name, pattern) for pattern in run.model.residual_outputs):
            own[name].zero_()
    return {name: own[name] for name in kept}


def extended_weights(
    weights: Mapping[str, Tensor], facts: ModelFacts, new: Pipeline, old: Pipeline, place: Path
) -> Mapping[str, Tensor]:
    """The weights of a model for an extended vocabulary. A new entry's row is the mean of those of its text's old tokens.

    The rows are those of embeddings, of the output layer and of its bias. A weight that is a gain times a direction gets the
    gain and the direction of the mean.
    facts: of the model with the new vocabularies
    Raises ArtefactError for a model with other weights that depend on the vocabulary.
    """
    parts = [
        parts_of_new_entries(extended.vocabulary, side.vocabulary)
        for extended, side in ((new.source, old.source), (new.target, old.target))
    ]
    with NoRandomWeights():
        own = _shapes(facts, place)
        source_alone = Vocabularies(new.source.size, new.target.size if new.joint else old.target.size, new.joint)
        of_source = _shapes(replace(facts, vocabularies=source_alone), place)
    if not weights.keys() <= own.keys():
        return weights  # which do not fit the model
    result = dict(weights)
    for name, tensor in weights.items():
        if own[name] == tensor.shape:
            continue
        side = 0 if of_source[name] != tensor.shape else 1
        if own[name] != (len(tensor) + len(parts[side]), *tensor.shape[1:]) or len(tensor) != old.sizes[side]:
            how = "depends on the vocabulary in a way that cannot be extended"
            raise ArtefactError(f"{quoted(place)}: '{quoted(name)}' {how} (nmt prepare --vocabulary without --extend)")
        result[name] = torch.cat([tensor, _new_rows(name, weights, parts[side])])
    return result


def _shapes(facts: ModelFacts, place: Path) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in weights_of(build_model(facts, place)).items()}


def _new_rows(name: str, weights: Mapping[str, Tensor], parts: Sequence[Sequence[int]]) -> Tensor:
    """(N, ...) the rows of N new entries. parts: ids of the old rows of each"""
    rows, layer = weights[name], name.removesuffix(GAIN).removesuffix(DIRECTION)
    if layer != name:
        direction = weights[layer + DIRECTION]
        rows = weights[layer + GAIN] * direction / direction.norm(dim=1, keepdim=True)
    means = torch.stack([rows[list(tokens)].mean(0) for tokens in parts])
    return means.norm(dim=1, keepdim=True) if name.endswith(GAIN) else means


def _fitting_state(run: Run, artefact: Artefact) -> SavedState:
    """The state of training in a checkpoint. Raises UserError unless it has one, and it fits what is taken of it."""
    options, folder = run.options, quoted(artefact.folder)
    flag = f"--init-state {options.init_state}"
    if TRAINING not in artefact.manifest["files"]:
        raise UserError(
            f"{flag}: {folder} is a model folder, without a state (name a run or a checkpoint, or give none)"
        )
    state = SavedState.read(artefact)
    same = ["optimizer", "freeze", "lora_rank", *(OF_POSITION if options.init_state == "all" else ())]
    both = completed_settings(state.settings, run.settings), run.settings
    rows = changed_settings(*({key: settings.get(key) for key in same} for settings in both))
    if rows:
        raise UserError(
            f"{flag}: the settings of {folder} differ ({listed(rows)}; give the same, or take less of its state)"
        )
    if options.init_state == "all" and state.data != run.data.fingerprint:
        raise UserError(
            f"{flag}: {folder} was trained on other data than {quoted(options.data)} (give --init-state schedule)"
        )
    return state
