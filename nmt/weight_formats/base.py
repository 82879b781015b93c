"""Weight formats: how linear layers and embeddings store their weights, for example in 8 bits.

The default is float32. A model folder names the format of its weights; `--precision` can choose another one for a search.
A registered format is built as `cls()`. Its options class has no options, but can declare:

file: name of the file for these weights, if it differs from that of other formats
converts: False if trained models cannot be converted to this format
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from nmt import registry
from nmt.artefact import Artefact
from nmt.models.saved import FLOAT32


class WeightFormat(ABC):
    """A way to store and multiply a model's weights."""

    @abstractmethod
    def check(self, device: torch.device) -> None:
        """Raise UserError if the installed torch cannot multiply these weights on a device."""

    @abstractmethod
    def convert(self, model: nn.Module) -> None:
        """Convert the weights of a model in place. Tied weights stay tied."""

    @abstractmethod
    def convert_layers(self, model: nn.Module) -> None:
        """Convert the layers of a model in place, before their weights are read from a file. The current values are ignored."""


class StoredFormat(ABC):
    """A format that only checkpoints use, in a separate `file`. Reading it gives float32 weights."""

    @abstractmethod
    def read(self, artefact: Artefact) -> dict[str, Tensor]:
        """Read the weights of a model folder or checkpoint. Raises ArtefactError if they are damaged."""


def format_of_file(file: str) -> StoredFormat:
    """The format with an options class that declares this file name."""
    classes = registry.options_classes("weight-format")
    [found] = (name for name, cls in classes.items() if getattr(cls, "file", None) == file)
    return registry.find("weight-format", found).cls()  # type: ignore[no-any-return]


def weight_format(name: str) -> WeightFormat | None:
    """Build a format by name; None for float32 and other values of `--precision`."""
    is_format = name != FLOAT32 and name in registry.names("weight-format")
    return registry.find("weight-format", name).cls() if is_format else None
