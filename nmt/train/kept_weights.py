"""Which of the model's weights a run's checkpoints keep: all, unless a start component trains only an addition to a model."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from torch import Tensor, nn

from nmt.artefact import Artefact
from nmt.checkpoint import put_weights, read_tensors, weights_of
from nmt.runs import WEIGHTS


class KeptWeights:
    """Keeps all weights. A start may provide a subclass that keeps only some.

    file: name of the weights file in a checkpoint
    is_whole: whether all weights of the model are kept
    """

    file: ClassVar[str] = WEIGHTS
    is_whole: ClassVar[bool] = True

    def begin(self, artefact: Artefact) -> None:
        """Called with the --init-from model before its weights are read. Raises UserError if it cannot be used."""

    def base(self, model: nn.Module) -> dict[str, Tensor]:
        """The weights that come from the --init-from model, by their names in that model."""
        return weights_of(model)

    def own(self, model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The subset of a model's weights that is kept, by their names in the file."""
        return {**weights}

    def whole(self, model: nn.Module, own: dict[str, Tensor]) -> dict[str, Tensor]:
        """The weights of the whole model, made from the kept ones."""
        return own

    def restore(self, model: nn.Module, own: Mapping[str, Tensor], checkpoint: Artefact) -> None:
        """Load a model's weights from a checkpoint. own: the kept weights. Raises ArtefactError if the checkpoint is damaged."""
        put_weights(own, read_tensors(checkpoint.path(self.file)), checkpoint.folder / self.file)

    def write(self, folder: Path) -> None:
        """Write the files that a checkpoint needs in addition to the kept weights."""
