"""Weight formats: how linear layers and embeddings store their weights, such as with 8 bits.

The default is float32. A model folder names the format of its weights; `--precision` may choose one for a search.
A registered format is built as `cls()`; its options class has no options, and may declare:

file: the name of the file of such weights, if it is not that of other formats
converts: False where a trained model cannot be converted to it
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from nmt import registry
from nmt.artefact import Artefact
from nmt.models.saved import FLOAT32


class WeightFormat(ABC):
    """A format of weights."""

    @abstractmethod
    def check(self, device: torch.device) -> None:
        """Raise UserError if this torch cannot multiply such weights on a device."""

    @abstractmethod
    def convert(self, model: nn.Module) -> None:
        """Convert the weights of a model in place. Tied weights stay tied."""

    @abstractmethod
    def make_room(self, model: nn.Module) -> None:
        """Convert the layers of a model in place. Their weights are read from a file afterwards, so the values do not matter."""


class StoredFormat(ABC):
    """A format that only checkpoints have, with a `file` of its own: what is read from it is float32."""

    @abstractmethod
    def read(self, artefact: Artefact) -> dict[str, Tensor]:
        """The weights of a model folder or checkpoint. Raises ArtefactError if they are damaged."""


def format_of_file(file: str) -> StoredFormat:
    """The format whose options class declares a file of that name."""
    classes = registry.options_classes("weight-format")
    [found] = (name for name, cls in classes.items() if getattr(cls, "file", None) == file)
    return registry.find("weight-format", found).cls()  # type: ignore[no-any-return]


def weight_format(name: str) -> WeightFormat | None:
    """The format of that name; None for float32 and other values of `--precision`."""
    is_format = name != FLOAT32 and name in registry.names("weight-format")
    return registry.find("weight-format", name).cls() if is_format else None
