"""What every criterion is: a sum over target tokens, which the trainer divides once."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor

from nmt.batch import Batch
from nmt.models.base import Model


class Loss(NamedTuple):
    """total: () the sum to minimise, in nats; tokens: () target tokens it sums over; parts: sums by name, detached."""

    total: Tensor
    tokens: Tensor
    parts: dict[str, Tensor]


class Criterion(ABC):
    """A registered criterion is built as `cls(options)`."""

    @abstractmethod
    def __call__(self, model: Model, batch: Batch) -> Loss:
        """The loss of a batch; splitting the batch splits the sums. parts has "nll", the plain negative log-likelihood."""
