"""A training run in memory: its parts, its progress, and when it is finished."""

import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Annotated, Any, ClassVar, Final, NamedTuple, cast

import msgspec
import numpy as np
import torch

from nmt import registry
from nmt.checkpoint import AdapterBase, NoRandomWeights, at_most, build_model, weights_of
from nmt.criteria.base import Criterion, CriterionContext
from nmt.data.loader import Loader, Position, UpdateBatches, to_batch
from nmt.data.mixture import Mixture
from nmt.data.shards import PreparedData
from nmt.device import Memory, keep_pages, use_threads
from nmt.dist import full_tensor, is_sharded
from nmt.errors import ResourceError, UserError, quoted, unknown
from nmt.files import Count, Ordinal
from nmt.models.base import FLOAT32_BYTES, Model
from nmt.models.saved import ModelFacts, Vocabularies
from nmt.nn.lora import merged, plain_name
from nmt.noises.base import Noise, NoiseContext
from nmt.optimizers.base import parameter_groups
from nmt.options import as_dict, flag_of
from nmt.quantities import size
from nmt.runs import Checkpoints
from nmt.schedules.base import Schedule
from nmt.train.moving_average import MovingAverage, WeightAverage
from nmt.train.options import AUTO, TrainOptions, lasting, parse_stages, without_minutes
from nmt.train.parallel import part_counts, recompute, spread
from nmt.train.report import LogOnlyReport, NoReport, Report, reporters_in_use
from nmt.train.setup import RunSetup, try_criterion
from nmt.train.update import LossScale, Updater
from nmt.training_speedups.base import training_speedups
from nmt.translate.options import TranslatorOptions
from nmt.translate.own_engine import OwnEngine
from nmt.translate.translator import Translator

TRIED_PAIRS: Final = 2  # at set-up: of two lengths, one has padding
REDUCED_UPDATES: Final = 1000  # after a rollback, with half the learning rate


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
    """The state of a run beside weights, optimizer and schedule; all of it is in a checkpoint."""

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
        if stage_of(self.position) != stage_of(data.after):
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


def stage_of(position: Position) -> int:
    """The number of the stage of --data-weights that a position lies in."""
    return position.part.stage if position.part is not None else 0


class Saving(NamedTuple):
    """A checkpoint that is being written.

    progress: what is saved in it
    thread: the writer; None on ranks other than the leader
    errors: at most one, which ended it
    """

    progress: dict[str, Any]
    thread: Thread | None
    errors: list[BaseException]


class Run:
    """Everything that a training run works with.

    settings: the options that decide its mathematics, by key
    validation: None without a development set; average: None without `--ema` and an optimizer that averages
    speedups: faster ways to train (nmt.training_speedups.base.TrainingSpeedup), each of which is asked
    starts: what changes the newly built model, those in use (nmt.starts.base.Start)
    adapter_scale: of the adapters that are trained; None without; adapter_base: the model that they are added to, once it is read
    saved: the progress in the newest checkpoint; failed_saves: in a row
    saving: the checkpoint that is being written; None if there is none
    minutes_before: minutes of training in earlier processes
    seconds: of training in this process until the last update, by the leader's clock
    """

    def __init__(self, setup: RunSetup, parts: Any) -> None:
        """Build it with fresh weights. parts: the chosen ones (nmt.cli.command.Parts)"""
        self.options = options = setup.options
        use_threads(options.threads)
        keep_pages()
        self.folder, self.checkpoints = Path(options.output), Checkpoints(Path(options.output))
        self.world, self.device, self.data, self.validation = setup.world, setup.device, setup.data, setup.validation
        pipeline, train, precision = self.data.pipeline, self.data.train, options.precision
        vocabularies = Vocabularies(*pipeline.sizes, pipeline.joint)
        torch.manual_seed(options.seed)
        self.model = _build_model(parts, vocabularies, self.device, self.world.local_size).to(self.device)
        self._check_model(parts.by_kind["model"].name)
        self.starts: list[Any] = [entry.cls(options) for entry in registry.active("start", options)]
        for start in self.starts:
            start.change(self.model)
        scales = [start.adapter_scale for start in self.starts if start.adapter_scale is not None]
        self.adapter_scale: float | None = scales[0] if scales else None
        self.adapter_base: AdapterBase | None = None
        self.facts = ModelFacts.of(parts.by_kind["model"].name, parts.by_kind["model"].options, vocabularies)
        self.context = CriterionContext(pipeline, self.model, options.seed)
        self.criterion: Criterion = parts.build("criterion", self.context)
        if self.criterion.needs_trained_model and self.is_new:
            why = "needs a trained model, because samples of random weights earn no reward"
            raise UserError(f"--criterion {self.criterion.part_name}: {why} (give --init-from MODEL)")
        pairs = to_batch(train, np.arange(min(TRIED_PAIRS, len(train)))).to(self.device)
        scores = try_criterion(self.model, self.criterion, pairs, self.validation, precision)
        self.scores = ["loss", *options.metrics, *sorted(scores - {"loss", *options.metrics})]
        if options.best_by not in (AUTO, *self.scores):
            raise unknown("score for --best-by", options.best_by, [AUTO, *self.scores])
        if options.activation_checkpointing:
            recompute(self.model)
        self.speedups = training_speedups(options)
        for speedup in self.speedups:
            speedup.change_layers(self.model)
        objective = spread(self.model, self.criterion, self.world, options.engine, pairs)
        self.optimizer: torch.optim.Optimizer = parts.build("optimizer", parameter_groups(self.model))
        self.average = self._new_average(parts.by_kind["optimizer"].name)
        counts = part_counts(self.model, self.criterion)
        self.updater = Updater(objective, self.optimizer, self.world, precision, options.clip_norm, counts)
        for speedup in self.speedups:
            speedup.change_updater(self)
        self.schedule: Schedule = parts.build("schedule", self.model.width, options.max_updates)
        self.loader = _new_loader(setup)
        self.settings = self._settings(parts)
        if self.validation is not None and self.validation.metrics:
            translating = TranslatorOptions(batch_tokens=options.valid_batch_tokens)
            engine = OwnEngine(pipeline, self.model, translating, parts.build("decoder"))
            translator = Translator(engine, translating)
            self.validation = replace(self.validation, translator=translator)
        self.report: Report | NoReport = NoReport()
        if self.world.leads:
            if options.dry_run:
                self.report = LogOnlyReport()
            else:
                self.report = Report(self.folder, reporters_in_use(options, self.folder))
        judged_by = "loss" if options.best_by == AUTO else options.best_by
        self.progress = Progress(judged_by=judged_by, scale=LossScale() if precision == "fp16" else None)
        self.failed_saves, self.minutes_before, self.seconds, self.started = 0, 0.0, 0.0, time.monotonic()
        self.saved: dict[str, Any] | None = None
        self.saving: Saving | None = None

    @property
    def is_new(self) -> bool:
        """Whether it starts with random weights."""
        return not any(start.gives_weights for start in self.starts)

    def _check_model(self, name: str) -> None:
        """Raise UserError for a model that these options and data cannot train."""
        if self.options.metrics and not self.model.reads_source:
            raise UserError(f"model {name} translates nothing (give --valid-metrics none)")
        for side in (self.data.pipeline.source, self.data.pipeline.target) if self.model.reads_characters else ():
            if (kind := side.settings.subword) != "char":
                data = quoted(self.options.data)
                raise UserError(f"model {name} reads characters, {data} has --subword {kind} (prepare it with char)")
        if self.model.cost_is_measured:  # an error of the measurement comes before any work
            self.model.flops(*torch.ones(2, 1, dtype=torch.int64, device=self.device))

    def _settings(self, parts: Any) -> dict[str, Any]:
        """What decides the mathematics of the run, by key, with the digests of the files that do."""
        values = as_dict(self.options)
        values["valid_every"] = without_minutes(values["valid_every"])
        settings = {key: values[key] for key in (*lasting(self.options), *self.schedule.depends_on)}
        settings |= parts.as_dict("model", "criterion", "optimizer", "schedule")
        settings |= {f"criterion.{name}": digest for name, digest in self.criterion.files.items()}
        if self.validation is not None:
            settings["valid_set_sha256"] = self.data.digest(f"valid.{self.validation.dev.name}")
        if self.loader.mixture is not None:
            settings["corpora"] = [[name, pairs] for name, pairs in self.data.train.corpora]
        return settings

    def _new_average(self, optimizer: str) -> WeightAverage | None:
        """The average of the weights that is validated and saved. Raises UserError for two of them."""
        averaged = getattr(self.optimizer, "averaged", None)
        if averaged is None:
            return MovingAverage(self.model, self.options.ema) if self.options.ema else None
        if self.options.ema:
            raise UserError(f"--ema: --optimizer {optimizer} averages the weights already (leave one of them out)")
        return WeightAverage(self.model, averaged)

    def learning_rate(self, update: int) -> float:
        """The learning rate of an update: the schedule's, or half of it in the REDUCED_UPDATES after a rollback."""
        is_reduced = any(update <= rollback.to + REDUCED_UPDATES for rollback in self.progress.rollbacks)
        return self.schedule(update) * (0.5 if is_reduced else 1.0)

    @property
    def minutes(self) -> float:
        """Minutes of training, in this process and earlier ones."""
        return self.minutes_before + self.seconds / 60

    @property
    def epochs(self) -> float:
        """Epochs read so far."""
        return self.progress.position.epoch - 1 + self.progress.position.pairs / len(self.data.train)

    @property
    def finished(self) -> bool:
        """Whether updates, epochs, minutes or patience are used up, or the schedule ends the run."""
        return self.end is not None

    @property
    def end(self) -> tuple[str, str] | None:
        """The option that ends the run, and a sentence why; None while the run is to go on."""
        options, progress = self.options, self.progress
        if options.patience is not None and progress.stalled >= options.patience:
            return "patience", f"no new best by {progress.judged_by} in {progress.stalled} validations"
        done = {"max_updates": progress.update, "max_epochs": self.epochs, "max_minutes": self.seconds / 60}
        shares = {name: count / (getattr(options, name) or math.inf) for name, count in done.items()}
        name = max(done, key=shares.__getitem__)
        if shares[name] >= 1:
            return name, f"{flag_of(name)} {getattr(options, name)} is reached"
        return self.schedule.end

    def agree(self, signal: int | None) -> int | None:
        """Set the clock, and return the signal that any rank received: all ranks stop, save and log at the same update."""
        limit = self.progress.limit
        agreed = self.world.agree(time.monotonic() - self.started, signal, limit.max_micro_batch_tokens)
        self.seconds, signal, limit.max_micro_batch_tokens = agreed
        return signal

    def evaluated_weights(self) -> dict[str, torch.Tensor]:
        """The weights that a checkpoint has and a validation measures, by name; an average, if there is one.

        With adapters they are those of the adapters, and buffers; the rest is in the model that they are added to.
        """
        weights = weights_of(self.model) | (self.average.weights if self.average is not None else {})
        if self.adapter_scale is None:
            return weights
        frozen = {name for name, parameter in self.model.named_parameters() if not parameter.requires_grad}
        return {plain_name(name): weight for name, weight in weights.items() if name not in frozen}

    def base_weights(self) -> dict[str, torch.Tensor]:
        """The weights of the model without adapters, by its names."""
        adapters = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        left_out = adapters if self.adapter_scale is not None else set()
        return {plain_name(name): weight for name, weight in weights_of(self.model).items() if name not in left_out}

    def evaluated_model(self) -> Model:
        """The model with `evaluated_weights`, all on each rank: itself, or a temporary copy if averaged or sharded."""
        weights = self.evaluated_weights()
        if self.average is None and not any(map(is_sharded, weights.values())):
            return self.model
        if self.adapter_scale is not None:
            both = self.base_weights(), weights
            base, adapter = ({name: full_tensor(weight) for name, weight in each.items()} for each in both)
            weights = merged(base, adapter, self.adapter_scale)
        with NoRandomWeights():
            copy = build_model(self.facts, self.folder)
        copy = copy.to(self.device).train()
        for name, tensor in weights_of(copy).items():
            tensor.copy_(full_tensor(weights[name]))
        copy.begin_update(self.progress.update)
        return copy


def _new_loader(setup: RunSetup) -> Loader:
    """The updates of this rank; `choose_kernels` sets the tokens of a micro-batch."""
    options, train, world = setup.options, setup.data.train, setup.world
    stages = parse_stages(options.data_weights)
    mixture = Mixture(train.corpora, stages, options.seed) if stages else None
    plan = options.batch_tokens, 1, options.seed
    return Loader(train, *plan, world.rank, world.size, setup.device.type, _new_noises(options, setup.data), mixture)


def _new_noises(options: TrainOptions, data: PreparedData) -> list[Noise]:
    """The noises whose options are given, in their order."""
    kinds = {name: column.kind for name, column in data.train.columns.items()}
    longest = max(int(lengths.max()) for lengths in (data.train.source_lengths, data.train.target_lengths))
    context = NoiseContext(data.pipeline, options.seed, kinds, longest)
    return [entry.cls(options, context) for entry in registry.active("noise", options)]


def _build_model(parts: Any, vocabularies: Vocabularies, device: torch.device, processes: int) -> Model:
    """The model with fresh weights, made on the CPU. processes: of this machine, each of which makes one

    Raises ResourceError if their weights, with their gradients where the device is a CPU, exceed the free memory.
    """
    free = Memory(torch.device("cpu")).free() // processes
    largest = free / (FLOAT32_BYTES * (2 if device.type == "cpu" else 1))
    error = ResourceError(
        f"the model has more than {largest:,.0f} parameters, too many for the {size(free)} of free memory (give smaller "
        "widths or fewer layers)"
    )
    try:
        # Random initializers on the meta device would make torch import its compiler, which takes 1.3 s.
        with at_most(largest, error), torch.random.fork_rng([]), torch.device("meta"), NoRandomWeights():
            parts.build("model", vocabularies)  # takes neither memory nor much time
    except Exception as failure:
        if failure is error:
            raise
        # A plug-in's model may need real tensors; any other fault comes up again.
    return cast(Model, parts.build("model", vocabularies))
