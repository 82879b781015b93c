"""What the checkpoints of a run keep of its model: all weights, unless a start trains only an addition to another model."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from torch import Tensor, nn

from nmt.artefact import Artefact
from nmt.checkpoint import put_weights, read_tensors, weights_of
from nmt.runs import WEIGHTS


class KeptWeights:
    """All weights are kept. A start may have a subclass, which keeps others.

    file: their name in a checkpoint
    is_whole: whether they are all weights of the model
    """

    file: ClassVar[str] = WEIGHTS
    is_whole: ClassVar[bool] = True

    def begin(self, artefact: Artefact) -> None:
        """Take note of the model of --init-from before its weights are read. Raises UserError if it cannot be used."""

    def base(self, model: nn.Module) -> dict[str, Tensor]:
        """The weights that the model of --init-from gives, by its names."""
        return weights_of(model)

    def own(self, model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What is kept of a model's weights, by the names of its file."""
        return {**weights}

    def whole(self, model: nn.Module, own: dict[str, Tensor]) -> dict[str, Tensor]:
        """The weights of the whole model, by those that are kept."""
        return own

    def restore(self, model: nn.Module, own: Mapping[str, Tensor], checkpoint: Artefact) -> None:
        """Replace a model's weights by those of a checkpoint. own: those that are kept. Raises ArtefactError if damaged."""
        put_weights(own, read_tensors(checkpoint.path(self.file)), checkpoint.folder / self.file)

    def write(self, folder: Path) -> None:
        """Write what a checkpoint needs in addition to the weights that are kept."""
