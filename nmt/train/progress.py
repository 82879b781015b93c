"""The progress of a run, which its checkpoints keep."""

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
    """What was measured on the device; a checkpoint keeps it, so that a continued run has the same bits.

    matmul: what a speedup chose to multiply by
    asked, max_tokens: the --max-tokens option and its devices, and the tokens that it came to
    max_micro_batch_tokens: tokens of a micro-batch since memory ran out; max_tokens until then
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
    """Statistics of the losses of updates, which tell a spike from noise.

    mean, deviation: exponential averages of the losses of good updates, and of their distances from the mean
    good: updates that they are over
    bad: updates in a row up to now that were skipped, or whose loss is far above the mean; since: the first of them
    """

    mean: float = 0.0
    deviation: float = 0.0
    good: Count = 0
    bad: Count = 0
    since: Count = 0

    DECAY: ClassVar[float] = 0.99
    MIN_GOOD: ClassVar[int] = 100  # before a loss can be too high
    HIGH_DEVIATIONS: ClassVar[float] = 10.0

    def see(self, update: int, loss: float, applied: bool) -> None:
        """Take the loss of an update into account. applied: whether it was finite"""
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
    """What changes in a run from update to update, apart from weights, optimizer and schedule; a checkpoint has all of it."""

    update: Ordinal = 0  # before the first, which no checkpoint is
    position: Position = Position()
    judged_by: str = "loss"  # name of the score of the best checkpoint; `--best-by auto` changes it once
    best: float | None = None  # best score of a validation; higher is better: a loss has its sign changed
    best_update: int = 0  # of the best score; 0 if not known
    stalled: int = 0  # validations since the best
    skipped: int = 0  # updates whose gradient was not finite
    skipped_in_a_row: int = 0
    validation_due: bool = False  # at this update, and not done yet
    validation_counts: bool = True  # for patience and schedule; that of a run's end alone does not
    save_due: bool = True  # at this update; a checkpoint only for a signal counts neither as last nor as best
    score: float | None = None  # of the validation at this update, if there was one
    epoch: Ordinal = 1  # of the last update
    flops: Annotated[int, msgspec.Meta(ge=0)] = 0  # of all updates, skipped ones too
    scale: LossScale | None = None  # of fp16
    limit: MicroBatchLimit = field(default_factory=MicroBatchLimit)
    watch: LossWatch = field(default_factory=LossWatch)
    rollbacks: list[Rollback] = field(default_factory=list)

    def advance(self, data: UpdateBatches) -> None:
        """Count an update on this data."""
        if self.position.stage != data.after.stage:
            self.watch = LossWatch()  # another mixture has another loss
        self.epoch, self.position, self.score = self.position.epoch, data.after, None
        self.update += 1

    def see(self, score: float) -> bool:
        """Keep the score of a validation, higher is better; return whether it is the best. One that is not finite never is.

        A validation at the end of a run does not make it stall, so that a run whose end is moved has the same result.
        """
        self.score = score if math.isfinite(score) else None
        better = self.score is not None and (self.best is None or score > self.best)
        if better:
            self.best, self.best_update, self.stalled = score, self.update, 0
        else:
            self.stalled += self.validation_counts
        return better
