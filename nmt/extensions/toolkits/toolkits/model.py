"""Writes nmt's own model folders: from a run, with fewer layers, or with 8-bit weights."""

from pathlib import Path
from typing import ClassVar

from nmt import register
from nmt.checkpoint import LoadedModel, size_of, weights_of
from nmt.extensions.toolkits.model_folder import export_model
from nmt.extensions.toolkits.toolkit import Toolkit
from nmt.extensions.toolkits.toolkits.options import WriteOnlyOptions
from nmt.log import log
from nmt.quantities import size
from nmt.runs import WEIGHTS


@register("toolkit", "model", WriteOnlyOptions)
class ModelFolder(Toolkit):
    """nmt's model folder, made from a run, with adapters merged, or with fewer layers."""

    kind: ClassVar[str] = "model"

    def write(self, loaded: LoadedModel, output: Path) -> str:
        export_model(loaded, output)
        how = f" with {' + '.join(map(str, loaded.model.depths))} layers" if loaded.model.depths else ""
        log.info(f"{output}: {self.options.model[0]}{how}")
        return ""


@register("toolkit", "int8", WriteOnlyOptions)
class Int8ModelFolder(Toolkit):
    """nmt's model folder with 8-bit weights, so that --precision int8 does not have to compute them at each start."""

    kind: ClassVar[str] = "model"

    def write(self, loaded: LoadedModel, output: Path) -> str:
        before = size_of(weights_of(loaded.model))
        export_model(loaded, output, "int8")
        written = size((output / WEIGHTS).stat().st_size)
        log.info(f"exported {self.options.model[0]} to {output} with 8-bit weights: {written}, not {size(before)}")
        return ""
