"""The interface of search engines, which search for the translations of encoded lines."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nmt.decoders.hypothesis import Constraints
from nmt.symbols import UNK
from nmt.text.pipeline import Pipeline
from nmt.translate.results import TRUNCATED, UNKNOWN_TOKENS, Candidate, Failure, PairScore


class EncodedLine(NamedTuple):
    """A request as ids.

    text: the line, truncated to the characters that are read
    source: ids without EOS, in the model's order
    constraints: the request's constraints, as target ids
    is_truncated: whether the line was too long
    num_context: number of context tokens at the start of the source
    """

    text: str
    source: list[int]
    constraints: Constraints
    is_truncated: bool
    num_context: int = 0

    @property
    def warnings(self) -> dict[str, str]:
        """Warnings about the line itself, for its Translation."""
        own = self.source[self.num_context :]
        warnings = {TRUNCATED: f"truncated to {len(own):,} tokens"} if self.is_truncated else {}
        if num_unknown := own.count(UNK):
            warnings[UNKNOWN_TOKENS] = f"{num_unknown:,} of {len(own):,} tokens are not in the model's vocabulary"
        return warnings


class BatchOutcome(NamedTuple):
    """The candidates or the failure of each line of a batch. warning: set if the batch was retried, otherwise empty"""

    lines: Sequence[list[Candidate] | Failure]
    warning: str


class SearchEngine(ABC):
    """Searches for translations: with the built-in models and decoders in torch, or with another library.

    pipeline: the text pipeline of its model
    device: name of its device, `cpu` or `cuda:0`
    signature: the search with its options, printed next to a score
    n_best: maximum number of translations per line
    takes_phrases: whether it can force phrases into a translation
    batch_tokens: source tokens per batch, including padding
    replicas: number of batches that one call searches in parallel
    """

    pipeline: Pipeline
    device: str
    signature: str
    n_best: int
    takes_phrases: bool
    batch_tokens: int
    replicas: int

    @abstractmethod
    def search(self, batches: Sequence[list[EncodedLine]]) -> Iterator[BatchOutcome]:
        """Search, and return the outcome of each batch in order."""

    @property
    def callers(self) -> int:
        """Number of threads of a server that should search at the same time."""
        return self.replicas

    def without_scores(self) -> None:  # noqa: B027
        """Called if log-probabilities are not needed, so that a greedy search can skip them. Does nothing by default."""

    @abstractmethod
    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore | Failure]:
        """Compute the log-probabilities of given translations. Returns a result for each pair of lines."""
