"""A loaded model as a model folder."""

from pathlib import Path
from typing import Any

from nmt.checkpoint import TEMPERATURE, LoadedModel, save_model, weights_of
from nmt.errors import one_line
from nmt.signals import StopCheck


def export_model(loaded: LoadedModel, output: Path, check: StopCheck) -> None:
    """Write a model folder, whole or not at all, with the temperature of its calibration.

    check: called before the folder gets its name
    """
    manifest: dict[str, Any] = {"made_of": one_line(str(loaded.folder))}
    if loaded.temperature is not None:
        manifest[TEMPERATURE] = loaded.temperature
    save_model(output, weights_of(loaded.model), loaded.facts, loaded.pipeline, manifest, check)
