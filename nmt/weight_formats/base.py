"""Weight formats: how linear layers and embeddings store their weights, such as with 8 bits.

The default is float32. A model folder names the format of its weights; `--precision` may choose one for a search.
A registered format is built as `cls()`; its options class is NoOptions.
"""

from abc import ABC, abstractmethod

import torch
from torch import nn

from nmt import registry
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


def weight_format(name: str) -> WeightFormat | None:
    """The format of that name; None for float32 and other values of `--precision`."""
    is_format = name != FLOAT32 and name in registry.names("weight-format")
    return registry.find("weight-format", name).cls() if is_format else None
