"""The first layers of a model as a model of their own, for one that was trained at all depths."""

from dataclasses import replace
from pathlib import Path

from nmt.checkpoint import LoadedModel, NoRandomWeights, save_model, take_weights, weights_of
from nmt.errors import UserError, one_line, quoted
from nmt.log import log
from nmt.signals import StopCheck


def first_layers(loaded: LoadedModel, encoder: int | None, decoder: int | None) -> LoadedModel:
    """The model with its first layers alone; None keeps all of a stack.

    Raises UserError for a model without `depths`, and for more layers than it has.
    """
    if (depths := loaded.model.depths) is None:
        raise UserError(
            f"--encoder-layers, --decoder-layers: {quoted(loaded.folder)}: has no depth to choose (leave them out)"
        )
    wanted = {}
    for name, given, depth in zip(("encoder_layers", "decoder_layers"), (encoder, decoder), depths, strict=True):
        if given is not None and given > depth:
            raise UserError(f"--{name.replace('_', '-')} {given}: {quoted(loaded.folder)} has {depth} (give fewer)")
        wanted[name] = given or depth
    facts = replace(loaded.facts, options={**loaded.facts.options, **wanted})
    with NoRandomWeights():
        model = facts.build(loaded.folder)
    weights = weights_of(loaded.model)
    take_weights(model, {name: weights[name] for name in weights_of(model)}, loaded.folder)
    return replace(loaded, model=model.eval(), facts=facts)


def export_model(loaded: LoadedModel, output: Path, check: StopCheck) -> None:
    """Write a model folder, whole or not at all. check: called before the folder gets its name"""
    with log.progress("writing the model"):
        origin = {"made_of": one_line(str(loaded.folder))}
        save_model(output, weights_of(loaded.model), loaded.facts, loaded.pipeline, origin, check)
