"""Formats of weights: in how many bits the linear layers and embeddings of a model store their weights.

Without a format they are float32. A model folder names the format of its weights, and `--precision` one for a search.
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
        """Raise UserError unless this torch can multiply such weights on a device."""

    @abstractmethod
    def convert(self, model: nn.Module) -> None:
        """Convert the weights of a model in place. Layers that share weights go on sharing them."""

    @abstractmethod
    def make_room(self, model: nn.Module) -> None:
        """Convert a model in place whose weights are read from a file next: what they are does not matter."""


def weight_format(name: str) -> WeightFormat | None:
    """The format of that name; None for float32, and for other words that `--precision` takes."""
    is_format = name != FLOAT32 and name in registry.names("weight-format")
    return registry.find("weight-format", name).cls() if is_format else None
