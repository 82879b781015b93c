"""What every decoder is: a search for good translations over a Scorer, in batches, with the same result alone."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from nmt.models.base import Scorer


@dataclass(frozen=True)
class Hypothesis:
    """A translation that a search found.

    tokens: ids without BOS and EOS
    log_prob: natural log-probability of tokens and EOS under the Scorer
    score: what the search ranks by: log_prob after its length penalty
    """

    tokens: list[int]
    log_prob: float
    score: float


class Decoder(ABC):
    """A search. A registered decoder is built as `cls(options)`."""

    @abstractmethod
    def search(self, scorer: Scorer, source: Tensor) -> list[list[Hypothesis]]:
        """For each row of source (B, S): the hypotheses found, best first, at least one."""

    @property
    def signature(self) -> str:
        """The search and its settings, as printed beside a score."""
        return type(self).__name__.lower()
