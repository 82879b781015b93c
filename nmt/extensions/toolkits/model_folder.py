"""Writes a loaded model as a model folder, optionally with 8-bit weights or with only its first layers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt import registry
from nmt.checkpoint import TEMPERATURE, LoadedModel, NoRandomWeights, build_model, save_model, take_weights, weights_of
from nmt.errors import UserError, one_line, quoted
from nmt.log import log
from nmt.models.saved import FLOAT32
from nmt.options import flag_of
from nmt.weight_formats.base import weight_format


def export_model(loaded: LoadedModel, output: Path, weights: str = FLOAT32) -> None:
    """Write a model folder, completely or not at all, with the temperature of the model's calibration.

    weights: format of the written weights; those of the loaded model are converted too. The temperature is kept, because
        rounding hardly changes the probabilities
    """
    if (wanted := weight_format(weights)) is not None:
        wanted.convert(loaded.model)
        loaded = replace(loaded, facts=replace(loaded.facts, weights=weights))
    manifest: dict[str, Any] = {"made_of": one_line(str(loaded.folder))}
    if loaded.temperature is not None:
        manifest[TEMPERATURE] = loaded.temperature
    save_model(output, weights_of(loaded.model), loaded.facts, loaded.pipeline, manifest)


def first_layers(loaded: LoadedModel, encoder: int | None, decoder: int | None) -> LoadedModel:
    """The model with only its first layers, and without calibration. None keeps all layers of a stack.

    Raises UserError if the model has no `depths` or too few layers, or if its options need more layers.
    """
    if (depths := loaded.model.depths) is None:
        raise UserError(f"--encoder-layers and --decoder-layers do not apply to {quoted(loaded.folder)} (drop them)")
    wanted = {}
    for name, given, depth in zip(("encoder_layers", "decoder_layers"), (encoder, decoder), depths, strict=True):
        if given is not None and given > depth:
            raise UserError(f"{flag_of(name)} {given}: {quoted(loaded.folder)} has only {depth} layers")
        wanted[name] = given or depth
    facts = replace(loaded.facts, options={**loaded.facts.options, **wanted})
    try:
        registry.choose("model", facts.model, facts.options)
    except UserError as error:
        raise UserError(
            f"--encoder-layers or --decoder-layers is too small for {quoted(loaded.folder)}: {error}"
        ) from None
    with NoRandomWeights():
        model = build_model(facts, loaded.folder)
    weights = weights_of(loaded.model)
    take_weights(model, {name: weights[name] for name in weights_of(model)}, loaded.folder)
    if loaded.temperature is not None:
        log.warn(
            f"{quoted(loaded.folder)}: the export has fewer layers, so it is not calibrated (run nmt score --calibrate on it)"
        )
    return replace(loaded, model=model.eval(), facts=facts, temperature=None)
