"""A training run in memory: its components, its progress, and when it is finished."""

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple

import torch

from nmt import signals
from nmt.checkpoint import NoRandomWeights, build_model, weights_of
from nmt.criteria.base import Criterion, CriterionContext
from nmt.data.loader import Loader
from nmt.data.shards import PreparedData
from nmt.dist import World, full_tensor, is_sharded
from nmt.models.base import Model
from nmt.models.saved import ModelFacts
from nmt.options import flag_of
from nmt.runs import Checkpoints
from nmt.schedules.base import Schedule
from nmt.train.kept_weights import KeptWeights
from nmt.train.options import TrainOptions
from nmt.train.progress import Progress
from nmt.train.report import NoReport, Report
from nmt.train.update import Updater
from nmt.train.validation import Validation
from nmt.train.weight_average import WeightAverage
from nmt.training_speedups.base import TrainingSpeedup

REDUCED_UPDATES: Final = 1000  # updates with half the learning rate after a rollback


class Saving(NamedTuple):
    """A checkpoint that is being written.

    progress: the progress that it saves
    thread: the writer; None on all ranks but the leader
    errors: at most one error, which stopped the thread
    """

    progress: dict[str, Any]
    thread: Thread | None
    errors: list[BaseException]


@dataclass(kw_only=True, eq=False)
class Run:
    """All objects that a training run works with. `nmt.train.build.build_run` creates it.

    settings: the options on which the run's results depend, by key
    validation: None without a validation set
    average: an average of the weights, or None if neither a start nor the optimizer averages them
    speedups: the active speedups
    starts: the active start components (nmt.starts.base.Start), which change the newly built model
    is_new: whether the weights were random at the start
    scores: names of the scores that a validation computes
    kept: which weights of the model its checkpoints keep
    saved: the progress in the newest checkpoint
    failed_saves: number of failed saves in a row
    saving: the checkpoint that is being written, or None
    started: when training started in this process, by the monotonic clock
    minutes_before: minutes of training in earlier processes
    seconds: seconds of training in this process, by the leader's clock when the ranks last synchronised
    seconds_at_update: `seconds` after the last update. --max-minutes counts these, so that a validation does not end a run
    signal: a signal that requests a stop, once all ranks know of it
    """

    options: TrainOptions
    world: World
    device: torch.device
    data: PreparedData
    validation: Validation | None
    facts: ModelFacts
    model: Model
    starts: list[Any]
    speedups: list[TrainingSpeedup]
    is_new: bool
    kept: KeptWeights
    context: CriterionContext
    criterion: Criterion
    scores: list[str]
    optimizer: torch.optim.Optimizer
    average: WeightAverage | None
    updater: Updater
    schedule: Schedule
    loader: Loader
    settings: dict[str, Any]
    report: Report | NoReport
    progress: Progress
    saved: dict[str, Any] | None = None
    saving: Saving | None = None
    failed_saves: int = 0
    minutes_before: float = 0.0
    seconds: float = 0.0
    seconds_at_update: float = 0.0
    signal: int | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def folder(self) -> Path:
        return Path(self.options.output)

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.folder)

    def learning_rate(self, update: int) -> float:
        """The learning rate of an update: the schedule's, or half of it in the REDUCED_UPDATES updates after a rollback."""
        is_reduced = any(update <= rollback.to + REDUCED_UPDATES for rollback in self.progress.rollbacks)
        return self.schedule(update) * (0.5 if is_reduced else 1.0)

    @property
    def minutes(self) -> float:
        """Minutes of training in this and earlier processes."""
        return self.minutes_before + self.seconds / 60

    @property
    def epochs(self) -> float:
        """Epochs read so far."""
        return self.progress.position.epoch - 1 + self.progress.position.pairs / len(self.data.train)

    @property
    def finished(self) -> bool:
        """Whether a limit on updates, epochs, minutes or patience is reached, or the schedule ends the run."""
        return self.end is not None

    @property
    def end(self) -> tuple[str, str] | None:
        """The option that ends the run, and a sentence that says why; None while the run should continue."""
        options, progress = self.options, self.progress
        if options.patience is not None and progress.stalled >= options.patience:
            validations = f"{progress.stalled} validation{'' if progress.stalled == 1 else 's'}"
            return "patience", f"{validations} without a new best {progress.judged_by}"
        done = {"max_updates": progress.update, "max_epochs": self.epochs, "max_minutes": self.seconds_at_update / 60}
        shares = {name: count / (getattr(options, name) or math.inf) for name, count in done.items()}
        name = max(done, key=shares.__getitem__)
        if shares[name] >= 1:
            return name, f"{flag_of(name)} {getattr(options, name)} is reached"
        return self.schedule.end

    @property
    def ends(self) -> bool:
        """Whether this update is the last of this process: the run is finished, or a signal requests a stop."""
        return self.finished or self.signal is not None

    def agree(self) -> None:
        """Synchronise the clock and the signal across all ranks, so that they stop, save and log at the same update."""
        limit, signal = self.progress.limit, signals.innermost().received
        seconds = time.monotonic() - self.started if self.world.leads else 0.0
        self.seconds, number, tokens = self.world.maximum(seconds, signal or 0, -limit.max_micro_batch_tokens)
        limit.max_micro_batch_tokens = -int(tokens)
        self.signal = int(number) or None

    def evaluated_weights(self) -> dict[str, torch.Tensor]:
        """The weights that are saved and validated, by name: the average, if there is one."""
        weights = weights_of(self.model) | (self.average.weights if self.average is not None else {})
        return self.kept.own(self.model, weights)

    def base_weights(self) -> dict[str, torch.Tensor]:
        """The weights that come from the --init-from model, by their names in that model."""
        return self.kept.base(self.model)

    def evaluated_model(self) -> Model:
        """The model with `evaluated_weights`, complete on each rank; a temporary copy if the weights are averaged or sharded."""
        weights = self.evaluated_weights()
        if self.average is None and not any(map(is_sharded, weights.values())):
            return self.model
        weights = self.kept.whole(self.model, weights)
        with NoRandomWeights():
            copy = build_model(self.facts, self.folder)
        copy = copy.to(self.device).train()
        for name, tensor in weights_of(copy).items():
            tensor.copy_(full_tensor(weights[name]))
        copy.begin_update(self.progress.update)
        return copy
