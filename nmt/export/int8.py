"""A model folder whose linear layers and embeddings have weights of 8 bits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt.checkpoint import TEMPERATURE, LoadedModel, save_model, weights_of
from nmt.errors import one_line
from nmt.log import log
from nmt.nn.quantized import quantize
from nmt.signals import StopCheck


def export_int8(loaded: LoadedModel, output: Path, check: StopCheck) -> None:
    """Write a model folder with weights of 8 bits, whole or not at all; quantizes the loaded model itself.

    The temperature of a calibration is kept: rounding hardly changes the probabilities.
    check: called before the folder gets its name
    """
    facts = replace(loaded.facts, weights="int8")
    manifest: dict[str, Any] = {"made_of": one_line(str(loaded.folder))}
    if loaded.temperature is not None:
        manifest[TEMPERATURE] = loaded.temperature
    with log.progress("rounding weights to 8 bits"):
        quantize(loaded.model)
        save_model(output, weights_of(loaded.model), facts, loaded.pipeline, manifest, check)
