"""A model folder whose linear layers and embeddings have weights of 8 bits."""

from dataclasses import replace
from pathlib import Path

from nmt.checkpoint import LoadedModel
from nmt.export.model_folder import export_model
from nmt.log import log
from nmt.nn.quantized import quantize
from nmt.signals import StopCheck


def export_int8(loaded: LoadedModel, output: Path, check: StopCheck) -> None:
    """Write a model folder with weights of 8 bits, whole or not at all; quantizes the loaded model itself.

    The temperature of a calibration is kept: rounding hardly changes the probabilities.
    check: called before the folder gets its name
    """
    with log.progress("rounding weights to 8 bits"):
        quantize(loaded.model)
        export_model(replace(loaded, facts=replace(loaded.facts, weights="int8")), output, check)
