"""A loaded model as a model folder, also with weights of 8 bits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt.checkpoint import TEMPERATURE, LoadedModel, save_model, weights_of
from nmt.errors import one_line
from nmt.nn.quantized import quantize
from nmt.signals import StopCheck


def export_model(loaded: LoadedModel, output: Path, check: StopCheck, int8: bool = False) -> None:
    """Write a model folder, whole or not at all, with the temperature of its calibration.

    check: called before the folder gets its name
    int8: round the weights of linear layers and embeddings to 8 bits, those of the loaded model too. The temperature is kept:
        rounding hardly changes the probabilities
    """
    if int8:
        quantize(loaded.model)
        loaded = replace(loaded, facts=replace(loaded.facts, weights="int8"))
    manifest: dict[str, Any] = {"made_of": one_line(str(loaded.folder))}
    if loaded.temperature is not None:
        manifest[TEMPERATURE] = loaded.temperature
    save_model(output, weights_of(loaded.model), loaded.facts, loaded.pipeline, manifest, check)
