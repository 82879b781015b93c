"""The progress of a run, which is saved in its checkpoints."""

import math
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import msgspec

from nmt.data.loader import UpdateBatches
from nmt.data.plan import Position
from nmt.files import Count, Ordinal
from nmt.train.update import LossScale


@dataclass
class MicroBatchLimit:
    """Results of measurements on the device. Checkpoints keep them, so that a resumed run computes identical results.

    matmul: the library of matrix products that a speedup chose
    asked: the value of --max-tokens and the devices, as text
    max_tokens: the resulting number of tokens
    max_micro_batch_tokens: a smaller limit after memory ran out; equal to max_tokens until then
    """

    matmul: str | None = None
    asked: str | None = None
    max_tokens: int = 0
    max_micro_batch_tokens: int = 0

    def __post_init__(self) -> None:
        if min(self.max_tokens, self.max_micro_batch_tokens) < (0 if self.asked is None else 1):
            raise ValueError(f"micro-batches of {self.max_tokens} and {self.max_micro_batch_tokens} tokens")


@dataclass
class LossWatch:
    """Statistics of the losses of updates, to distinguish a spike from noise.

    mean, deviation: exponential averages of the losses of good updates, and of their distances from the mean
    good: number of good updates in the averages
    bad: number of latest updates in a row that were skipped or had a loss far above the mean
    since: the first of these bad updates
    """

    mean: float = 0.0
    deviation: float = 0.0
    good: Count = 0
    bad: Count = 0
    since: Count = 0

    DECAY: ClassVar[float] = 0.99
    MIN_GOOD: ClassVar[int] = 100  # number of good updates before a loss can count as too high
    HIGH_DEVIATIONS: ClassVar[float] = 10.0

    def see(self, update: int, loss: float, applied: bool) -> None:
        """Include the loss of an update. applied: whether the update was finite and therefore applied"""
        is_high = self.good >= self.MIN_GOOD and loss > self.mean + self.HIGH_DEVIATIONS * self.deviation
        if is_high or not applied:
            self.since = self.since if self.bad else update
            self.bad += 1
            return
        self.bad, self.good = 0, self.good + 1
        share = max(1 - self.DECAY, 1 / self.good)
        if self.good > 1:
            self.deviation += share * (abs(loss - self.mean) - self.deviation)
        self.mean += share * (loss - self.mean)


@dataclass(frozen=True)
class Rollback:
    """A return from a diverged update `at` to the checkpoint of update `to`."""

    at: int
    to: int


@dataclass
class Progress:
    """The state of a run that changes with each update, apart from weights, optimizer and schedule. Checkpoints save it."""

    update: Ordinal = 0  # 0 before the first update, when there is no checkpoint yet
    position: Position = Position()
    judged_by: str = "loss"  # name of the score that selects the best checkpoint; `--best-by auto` changes it once
    best: float | None = None  # best validation score, higher is better: a loss is negated
    best_update: int = 0  # update with the best score; 0 if unknown
    stalled: int = 0  # validations since the best one
    skipped: int = 0  # updates without a finite gradient
    skipped_in_a_row: int = 0
    validation_due: bool = False  # whether a validation at this update is due and not done yet
    validation_counts: bool = True  # for patience and the schedule; False if it is due only because the run ends
    save_due: bool = True  # whether a save is due; --keep-last and --keep-best ignore saves forced by a signal
    score: float | None = None  # validation score at this update, if there was a validation
    epoch: Ordinal = 1  # epoch of the last update
    flops: Annotated[int, msgspec.Meta(ge=0)] = 0  # total of all updates, including skipped ones
    scale: LossScale | None = None  # only with fp16
    limit: MicroBatchLimit = field(default_factory=MicroBatchLimit)
    watch: LossWatch = field(default_factory=LossWatch)
    rollbacks: list[Rollback] = field(default_factory=list)

    def advance(self, data: UpdateBatches) -> None:
        """Advance by one update on this data."""
        if self.position.stage != data.after.stage:
            self.watch = LossWatch()  # the loss of a different mixture is not comparable
        self.epoch, self.position, self.score = self.position.epoch, data.after, None
        self.update += 1

    def see(self, score: float) -> bool:
        """Record the score of a validation and return whether it is the best so far. Higher is better; it must be finite.

        A validation due only because the run ends does not increase `stalled`, so the result does not depend on where a run ends.
        """
        self.score = score if math.isfinite(score) else None
        better = self.score is not None and (self.best is None or score > self.best)
        if better:
            self.best, self.best_update, self.stalled = score, self.update, 0
        else:
            self.stalled += self.validation_counts
        return better
