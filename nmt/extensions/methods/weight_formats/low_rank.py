"""Low-rank adapters in checkpoints (Hu et al., 2021): `adapter.safetensors` and `adapter.json`, which names the base model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from torch import Tensor

from nmt import UserError, register
from nmt.artefact import Artefact
from nmt.checkpoint import read_tensors
from nmt.errors import ArtefactError, expecting, quoted
from nmt.extensions.methods.low_rank import merged
from nmt.extensions.methods.weight_formats.options import LowRankOptions
from nmt.runs import WEIGHTS
from nmt.weight_formats.base import StoredFormat

ADAPTER_BASE: Final = "adapter.json"


@register("weight-format", "low-rank", LowRankOptions)
class LowRankWeights(StoredFormat):
    """The weights of a base model plus low-rank adapters (Hu et al., 2021). A run with --lora-rank saves this format."""

    def read(self, artefact: Artefact) -> dict[str, Tensor]:
        """See StoredFormat."""
        base, path = AdapterBase.read(artefact), artefact.path(LowRankOptions.file)
        weights, adapter = base.weights(artefact.folder), read_tensors(path)
        try:
            return merged(weights, adapter, base.scale)
        except (ValueError, RuntimeError) as error:  # torch raises RuntimeError for unsuitable number formats
            raise ArtefactError(
                f"{quoted(path)}: the adapter does not fit the model {quoted(base.folder)}: {quoted(error)}"
            ) from None


@dataclass(frozen=True)
class AdapterBase:
    """The content of adapter.json: the model that an adapter is added to.

    folder: location of the model when the run started
    sha256: hash of its weights
    scale: factor of the product of the adapter's matrices, alpha / r
    """

    folder: str
    sha256: str
    scale: float

    @classmethod
    def of(cls, artefact: Artefact, scale: float) -> "AdapterBase":
        """Describe the model in an artefact. Raises UserError if it is itself an adapter."""
        if LowRankOptions.file in artefact.manifest["files"]:
            merge = f"merge it first: nmt average --checkpoint {quoted(artefact.folder)}"
            raise UserError(
                f"{quoted(artefact.folder)}: an adapter cannot be trained on top of another adapter ({merge})"
            )
        artefact.unchecked_path(WEIGHTS)  # raises if there are no weights
        return cls(str(artefact.folder.absolute()), artefact.manifest["files"][WEIGHTS]["sha256"], scale)

    @classmethod
    def read(cls, artefact: Artefact) -> "AdapterBase":
        content = artefact.json(ADAPTER_BASE)
        with expecting("the base of an adapter", artefact.folder / ADAPTER_BASE):
            return msgspec.convert(content, cls)

    def weights(self, adapter: Path) -> dict[str, Tensor]:
        """The model's weights. Raises ArtefactError if the model is missing or has changed. adapter: folder of the adapter"""
        fix = f"put the model that {quoted(adapter)} was trained on there, or link to it"
        try:
            artefact = Artefact(Path(self.folder), "model", "checkpoint")
        except ArtefactError as error:
            raise ArtefactError(f"{error} ({fix})") from None
        found = artefact.manifest["files"].get(WEIGHTS, {}).get("sha256")
        if found != self.sha256:
            wrong = f"not the model that the adapter needs: its sha256 is {quoted(found)}, expected {self.sha256}"
            raise ArtefactError(f"{quoted(artefact.folder / WEIGHTS)}: {wrong} ({fix})")
        return read_tensors(artefact.path(WEIGHTS))
