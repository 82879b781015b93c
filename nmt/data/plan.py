"""Plans of batches: which pairs each update of a training reads, from any position on.

A plan is a pure function of (data, options, seed, position), so a resumed run continues at its pair at once. The plan of one
corpus is used unless the options of `nmt train` activate another one.
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

    part: the start of the part that the position is in, for plans that need it; None at the very start
    """

    epoch: Ordinal = 1
    pairs: Count = 0
    part: Mapping[str, Any] | None = None

    @property
    def stage(self) -> int:
        """The stage of the plan that it is in. Losses of different stages are not comparable."""
        stage = self.part.get("stage") if self.part is not None else 0
        return stage if isinstance(stage, int) else 0


class BatchPlan(ABC):
    """The order of the data of a training. A registered plan is built as `cls(options, corpus, batch_tokens, seed)`.

    options: those of `nmt train`; batch_tokens: target tokens of an update, EOS counted
    The plan's own options decide what a position in the data means.
    """

    def __init__(self, options: Any, corpus: Corpus, batch_tokens: int, seed: int) -> None:
        self.corpus, self.batch_tokens, self.seed = corpus, batch_tokens, seed

    @abstractmethod
    def part(self, position: Position) -> PartPlan:
        """The updates of the part of an epoch that a position is in. Raises ArtefactError for a position in other data."""

    def tokens_per_epoch(self) -> float:
        """The approximate number of target tokens in an epoch, without EOS."""
        return int(self.corpus.target_lengths.sum(dtype="int64"))

    def first_position(self, updates: int) -> Position:
        """Where a run starts that takes over another run's number of updates, but not its data."""
        return Position()

    def settings(self) -> dict[str, Any]:
        """What a resumed run must keep besides the options, by key."""
        return {}

    def lines(self) -> list[str]:
        """What it does, for the log."""
        return []


def new_plan(options: Any, corpus: Corpus) -> BatchPlan:
    """The plan that the options of a training choose. Raises UserError for options that do not fit the corpus."""
    entry = registry.selected("plan", "corpus", options)
    plan: BatchPlan = entry.cls(options, corpus, options.batch_tokens, options.seed)
    return plan
