"""The interface of engines, which search for the translations of lines that are ids already."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nmt.decoders.hypothesis import Constraints
from nmt.symbols import UNK
from nmt.text.pipeline import Pipeline
from nmt.translate.results import CUT, UNKNOWN_TOKENS, Candidate, Failure, PairScore


class EncodedLine(NamedTuple):
    """A request as ids.

    text: the line, cut to the characters that are read
    source: ids without EOS, in the model's order
    constraints: the request's, as target ids
    is_cut: whether the line was too long
    num_context: tokens of the source that are its context
    """

    text: str
    source: list[int]
    constraints: Constraints
    is_cut: bool
    num_context: int = 0

    @property
    def warnings(self) -> dict[str, str]:
        """Warnings of a Translation about the line itself."""
        own = self.source[self.num_context :]
        warnings = {CUT: f"cut to {len(own):,} tokens"} if self.is_cut else {}
        if num_unknown := own.count(UNK):
            warnings[UNKNOWN_TOKENS] = f"the model's vocabulary lacks {num_unknown:,} of its {len(own):,} tokens"
        return warnings


class BatchOutcome(NamedTuple):
    """The candidates or the failure of each line of a batch. warning: if the batch was retried; empty if not"""

    lines: Sequence[list[Candidate] | Failure]
    warning: str


class SearchEngine(ABC):
    """What searches: our own models and searches in torch, or CTranslate2.

    pipeline: of its model
    device: its name, `cpu` or `cuda:0`
    signature: the search with its options, printed beside a score
    n_best: translations of a line, at most
    takes_phrases: whether it can hold to phrases that a translation must contain
    batch_tokens: source tokens of a batch, padding counted
    replicas: batches that are searched side by side
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
        """The outcome of each batch, in their order."""

    def without_scores(self) -> None:  # noqa: B027
        """Called when nobody reads log-probabilities, which a greedy search can then leave out; by default they are computed."""

    @abstractmethod
    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore | Failure]:
        """Log-probabilities of given translations, a result for each pair of lines."""
