"""Batch plans: which pairs each training update reads, starting at any position.

A plan is a pure function of (data, options, seed, position), so a resumed run continues at the right pair immediately. The plan
`corpus` is used unless the options of `nmt train` activate another one.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nmt import registry
from nmt.data.batching import PartPlan
from nmt.data.shards import Corpus
from nmt.files import Count, Ordinal


@dataclass(frozen=True)
class Position:
    """A position in the data: `pairs` pairs of `epoch` (counted from 1) have been read.

    part: state at the start of the current part, for plans that need it; None at the very start
    """

    epoch: Ordinal = 1
    pairs: Count = 0
    part: Mapping[str, Any] | None = None

    @property
    def stage(self) -> int:
        """The stage of the plan at this position. Losses from different stages are not comparable."""
        stage = self.part.get("stage") if self.part is not None else 0
        return stage if isinstance(stage, int) else 0


class BatchPlan(ABC):
    """The order in which training reads its data. A registered plan is built as `cls(options, corpus, batch_tokens, seed)`.

    options: options of `nmt train`; batch_tokens: target tokens per update, including EOS
    What a position means depends on the plan's own options.
    """

    def __init__(self, options: Any, corpus: Corpus, batch_tokens: int, seed: int) -> None:
        self.corpus, self.batch_tokens, self.seed = corpus, batch_tokens, seed

    @abstractmethod
    def part(self, position: Position) -> PartPlan:
        """The updates in the part of an epoch that contains a position. Raises ArtefactError if the data has no such position."""

    def tokens_per_epoch(self) -> float:
        """The approximate number of target tokens per epoch, without EOS."""
        return int(self.corpus.target_lengths.sum(dtype="int64"))

    def first_position(self, updates: int) -> Position:
        """The position at which a run starts if it takes over another run's number of updates, but not its data."""
        return Position()

    def settings(self) -> dict[str, Any]:
        """Settings that a resumed run must keep in addition to the options, by key."""
        return {}

    def lines(self) -> list[str]:
        """Log lines that describe the plan."""
        return []


def new_plan(options: Any, corpus: Corpus) -> BatchPlan:
    """Build the plan that the training options choose. Raises UserError if the options do not fit the corpus."""
    entry = registry.selected("plan", "corpus", options)
    plan: BatchPlan = entry.cls(options, corpus, options.batch_tokens, options.seed)
    return plan
