"""A training run in memory: its parts, its progress, and when it is finished."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from nmt.checkpoint import ModelFacts, weights_of
from nmt.criteria.base import Criterion, CriterionContext
from nmt.data.loader import Loader, Position, UpdateBatches
from nmt.data.shards import PreparedData
from nmt.dist import World, full_tensor, is_sharded
from nmt.models.base import Model
from nmt.nn.matmul import Matmul
from nmt.report.training import NoReport, Report
from nmt.runs import Checkpoints
from nmt.schedules.base import Schedule
from nmt.train.options import TrainOptions
from nmt.train.update import LossScale, Updater
from nmt.train.validation import Validation


@dataclass
class MicroBatchLimit:
    """What was measured on the device; a checkpoint keeps it, so that a continued run has the same bits.

    matmul: path of a CPU's float32 products
    asked, max_tokens: the --max-tokens option and its devices, and the tokens that it came to
    max_micro_batch_tokens: tokens of a micro-batch since memory ran out; max_tokens until then
    """

    matmul: Matmul | None = None
    asked: str | None = None
    max_tokens: int = 0
    max_micro_batch_tokens: int = 0

    def __post_init__(self) -> None:
        if min(self.max_tokens, self.max_micro_batch_tokens) < (0 if self.asked is None else 1):
            raise ValueError(f"micro-batches of {self.max_tokens} and {self.max_micro_batch_tokens} tokens")


@dataclass
class Progress:
    """The state of a run beside weights, optimizer and schedule; all of it is in a checkpoint."""

    update: int = 0
    position: Position = Position()
    best: float | None = None  # best score of a validation; higher is better: a loss has its sign changed
    stalled: int = 0  # validations since the best
    skipped: int = 0  # updates whose gradient was not finite
    skipped_in_a_row: int = 0
    validation_due: bool = False  # at this update, and not done yet
    save_due: bool = True  # at this update; a checkpoint only for a signal counts neither as last nor as best
    score: float | None = None  # of the validation at this update, if there was one
    epoch: int = 1  # of the last update
    flops: int = 0  # of all updates, skipped ones too
    scale: LossScale | None = None  # of fp16
    limit: MicroBatchLimit = field(default_factory=MicroBatchLimit)

    def advance(self, data: UpdateBatches) -> None:
        """Count an update on this data."""
        self.epoch, self.position, self.score = self.position.epoch, data.after, None
        self.update += 1

    def see(self, score: float) -> bool:
        """Keep the score of a validation, higher is better; return whether it is the best. One that is not finite never is."""
        better = math.isfinite(score) and (self.best is None or score > self.best)
        self.score = score if math.isfinite(score) else None
        self.best = score if better else self.best
        self.stalled = 0 if better else self.stalled + 1
        return better


@dataclass
class Run:
    """Everything that a training run works with.

    settings: the options that decide its mathematics, by key
    validation: None without a development set
    saved: the progress in the newest checkpoint; failed_saves: in a row
    minutes_before: minutes of training in earlier processes
    seconds: of training in this process until the last update, by the leader's clock
    """

    options: TrainOptions
    settings: Mapping[str, Any]
    folder: Path
    data: PreparedData
    facts: ModelFacts
    world: World
    model: Model
    criterion: Criterion
    context: CriterionContext
    updater: Updater
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    loader: Loader
    validation: Validation | None
    report: Report | NoReport
    checkpoints: Checkpoints
    progress: Progress
    failed_saves: int = 0
    saved: dict[str, Any] | None = None
    minutes_before: float = 0.0
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    @property
    def minutes(self) -> float:
        """Minutes of training, in this process and earlier ones."""
        return self.minutes_before + self.seconds / 60

    @property
    def epochs(self) -> float:
        """Epochs read so far."""
        return self.progress.position.epoch - 1 + self.progress.position.pairs / len(self.data.train)

    @property
    def share(self) -> float | None:
        """The share of the run that is done, 0 to 1; None when it has no end set."""
        options = self.options
        ends = options.max_updates, options.max_epochs, options.max_minutes
        done = self.progress.update, self.epochs, self.seconds / 60
        shares = [number / end for number, end in zip(done, ends, strict=True) if end is not None]
        return min(max(shares), 1.0) if shares else None

    @property
    def finished(self) -> bool:
        """Whether updates, epochs, minutes or patience are used up."""
        patience = self.options.patience
        return self.share == 1 or (patience is not None and self.progress.stalled >= patience)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def agree(self, signal: int | None) -> int | None:
        """Set the clock, and return the signal that any rank received: all ranks stop, save and log at the same update."""
        limit = self.progress.limit
        agreed = self.world.agree(time.monotonic() - self.started, signal, limit.max_micro_batch_tokens)
        self.seconds, signal, limit.max_micro_batch_tokens = agreed
        return signal

    def full_model(self) -> Model:
        """The model with all its parameters on each rank: itself, or a temporary copy where they are sharded."""
        weights = weights_of(self.model)
        if not any(map(is_sharded, weights.values())):
            return self.model
        copy = self.facts.build(self.folder).to(self.device).train()
        for name, tensor in weights_of(copy).items():
            tensor.copy_(full_tensor(weights[name]))
        copy.begin_update(self.progress.update)
        return copy


def update_seed(seed: int, update: int, rank: int) -> int:
    """The seed of the random draws of an update on a rank, dropout's for example: no random state outlives an update."""
    return int.from_bytes(sha256(f"{seed} {update} {rank}".encode()).digest()[:8], "little", signed=True)
