"""A training run on disk and in memory: its options, its parts, and what a checkpoint keeps of it."""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import torch
from torch import Tensor

from nmt import UserError, opt
from nmt.artefact import Artefact, new_folder, sweep, to_json, write_file
from nmt.checkpoint import (
    TRAINING_TENSORS,
    ModelFacts,
    begin,
    flat_optimizer,
    put_optimizer,
    put_weights,
    read_tensors,
    refuse_not_finite,
    weights_of,
    write_model,
    write_tensors,
)
from nmt.criteria.base import Criterion, CriterionContext
from nmt.data.loader import Loader, Position, UpdateBatches
from nmt.data.shards import PreparedData
from nmt.device import Precision
from nmt.dist import MOST_MINUTES, World, is_sharded, whole
from nmt.errors import ArtefactError, ResourceError, quoted
from nmt.log import log
from nmt.models.base import Model
from nmt.nn.linear import Matmul
from nmt.options import REQUIRED
from nmt.report.training import NoReport, Report
from nmt.runs import TRAINING, WEIGHTS, Checkpoints, update_of
from nmt.schedules.base import Schedule
from nmt.train.parallel import Engine
from nmt.train.period import Period
from nmt.train.update import LossScale, Updater

SAVES_THAT_MAY_FAIL: Final = 2


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The trainer's own options; those of the parts stand beside them."""

    data: str = opt(REQUIRED, "prepared data (nmt prepare)")
    output: str = opt(REQUIRED, "run folder; a run that is there goes on", aliases=("o", "save-dir"))
    batch_tokens: int = opt(25000, "target tokens of an update, for the whole world; 25000 in the paper")
    max_tokens: int | Literal["auto"] = opt(
        4096, "tokens, padding counted, that a device holds at once, or auto; only dropout's draws depend on it"
    )
    max_updates: int | None = opt(100_000, "stop after this many updates", aliases=("max-update",))
    max_epochs: int | None = opt(None, "stop after this many epochs", aliases=("max-epoch",))
    max_minutes: float | None = opt(None, "stop after this many minutes of this process")
    save_every: str = opt(
        "1000u", "write a checkpoint every 500u (updates), 1e (epochs) or 10m (minutes)", aliases=("save-freq",)
    )
    valid_every: str = opt("1000u", "validate every 500u, 1e or 10m", aliases=("valid-freq",))
    log_every: str = opt("100u", "log every 100u, 1e or 1m", aliases=("log-freq",))
    keep_last: int = opt(10, "newest checkpoints to keep; 0 keeps all")
    keep_best: int = opt(1, "best checkpoints to keep")
    best_by: Literal["bleu", "loss"] = opt("bleu", "what makes a checkpoint the best")
    patience: int | None = opt(None, "stop after this many validations without a new best", aliases=("early-stopping",))
    valid_set: str | None = opt(None, "name of the development set in the data; none is the first")
    valid_bleu: bool = opt(True, "translate the development set at each validation")
    valid_batch_tokens: int = opt(2000, "source tokens of a batch while the development set is translated")
    bleu_tokenize: str = opt("13a", "sacreBLEU's tokenizer for validation; none for text that is tokenised already")
    clip_norm: float = opt(0.0, "largest 2-norm of the gradient; 0 does not clip, as the paper")
    precision: Precision = opt("fp32", "fp32, or bf16 or fp16 products with fp32 weights, or tf32 products (GPUs)")
    matmul: Literal["auto", "torch", "onednn"] = opt(
        "auto", "fp32 products on a CPU: torch's own or oneDNN's, both exact; auto measures which is faster here"
    )
    activation_checkpointing: bool = opt(
        False,
        "keep of each layer its input alone, and compute the rest again: less memory, a third more work",
        aliases=("checkpoint-activations",),
    )
    compile: bool = opt(False, "let torch.compile fuse each layer's kernels; needs a compiler, takes a minute at first")
    dry_run: bool = opt(False, "make a few updates, say what the run would do, take and cost, and keep nothing")
    device: str = opt("auto", "auto, cpu, cuda or cuda:N")
    devices: int = opt(1, "processes on this machine, a device each; torchrun starts them (or start torchrun yourself)")
    engine: Engine = opt("ddp", "of several devices: ddp, or fsdp for a model that does not fit one")
    timeout: float = opt(10.0, "minutes that one of several devices may be waited for")
    threads: int | None = opt(None, "threads for CPU work; none leaves it to torch")
    seed: int = opt(1, "of weights, dropout and the order of data")
    tensorboard: bool = opt(False, "write events for TensorBoard to RUN/tensorboard")
    json: bool = opt(False, "at the end print where the run stands, and its best checkpoint, as JSON")

    def __post_init__(self) -> None:
        least = dict.fromkeys(("batch_tokens", "valid_batch_tokens", "threads", "patience", "devices"), 1)
        least |= dict.fromkeys(("max_updates", "max_epochs"), 1) | dict.fromkeys(("keep_last", "keep_best", "seed"), 0)
        for name, bound in least.items():
            if getattr(self, name) is not None and getattr(self, name) < bound:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {bound}")
        if self.max_tokens != "auto" and self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; it must be at least 1, or auto")
        if self.seed >= 2**63:
            raise ValueError(f"seed is {self.seed}; it must be below 2^63")
        if not 0 <= self.clip_norm < math.inf:
            raise ValueError(f"clip_norm is {self.clip_norm}; it must be at least 0")
        for name in ("max_minutes", "timeout"):
            if getattr(self, name) is not None and not 0 < getattr(self, name) <= MOST_MINUTES:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0, and at most {MOST_MINUTES:,}")
        for name in ("save_every", "valid_every", "log_every"):
            try:
                Period.parse(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        if self.best_by == "bleu" and not self.valid_bleu:
            raise ValueError("best_by is 'bleu' but valid_bleu is off (give --best-by loss)")


# Of TrainOptions, what a run that goes on must keep: its mathematics and the meaning of its scores. The options of model,
# criterion, optimizer and schedule all count.
MUST_STAY: Final = ("batch_tokens", "clip_norm", "precision", "seed", "best_by", "valid_set", "bleu_tokenize")


@dataclass
class MicroBatchLimit:
    """What was found out about the device: kept with the run, which so goes on with the same bits.

    matmul: path of a CPU's products
    asked, max_tokens: the --max-tokens that was given, for which devices, and what it came to; others are looked at anew
    max_micro_batch_tokens: that a micro-batch may have since memory ran out; max_tokens before
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
    """What changes from update to update, beside weights and optimizer; all of it is in a checkpoint."""

    update: int = 0
    position: Position = Position()
    best: float | None = None  # higher is better: BLEU, or minus the loss
    stalled: int = 0  # validations since the best
    skipped: int = 0  # updates whose gradient was not finite, in all
    skipped_in_a_row: int = 0
    validation_due: bool = False  # at this very update, and not done yet
    save_due: bool = True  # at this very update; a checkpoint that only a signal asked for counts among no last or best
    score: float | None = None  # of the last validation, when it was at this very update
    epoch: int = 1  # that the last update was of
    flops: int = 0  # of all updates; those that were skipped were computed too
    scale: LossScale | None = None  # of fp16
    limit: MicroBatchLimit = field(default_factory=MicroBatchLimit)

    def advance(self, data: UpdateBatches) -> None:
        """Note that an update of this data was made."""
        self.epoch, self.position, self.score = self.position.epoch, data.after, None
        self.update += 1

    def see(self, score: float) -> bool:
        """Note what validation gave, higher is better; whether it is the best so far. What is not finite never is."""
        better = math.isfinite(score) and (self.best is None or score > self.best)
        self.score = score if math.isfinite(score) else None
        self.best = score if better else self.best
        self.stalled = 0 if better else self.stalled + 1
        return better


@dataclass
class Run:
    """Everything one training run works with."""

    options: TrainOptions
    settings: Mapping[str, Any]  # those that change the mathematics, by key
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
    report: Report | NoReport
    checkpoints: Checkpoints
    progress: Progress
    failed_saves: int = 0
    saved: dict[str, Any] | None = None  # the progress that the newest checkpoint holds
    minutes_before: float = 0.0  # of training, before this process
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0  # of training in this process, by the leader's clock, when the last update was made

    @property
    def minutes(self) -> float:
        """Minutes of training so far, in this process and those before it."""
        return self.minutes_before + self.seconds / 60

    def agree(self, signal: int | None) -> int | None:
        """Set the clock, and return the signal that any rank received: all ranks stop, save and ring at one update."""
        found = self.progress.limit
        told = self.world.agree(time.monotonic() - self.started, signal, found.max_micro_batch_tokens)
        self.seconds, signal, found.max_micro_batch_tokens = told
        return signal

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def whole_model(self) -> Model:
        """The model with all its parameters on each rank: itself or, where they are sharded, a copy for the moment."""
        weights = weights_of(self.model)
        if not any(map(is_sharded, weights.values())):
            return self.model
        copy = self.facts.build(self.folder).to(self.device).train()
        for name, tensor in weights_of(copy).items():
            tensor.copy_(whole(weights[name]))
        return copy

    def resume(self) -> bool:
        """Go back to the newest whole checkpoint; False when the run has none. Raises as check_same does."""
        found = self._newest()
        if found is None:
            self.report.cut(0)
            return False
        state = Saved.read(found)
        self.check_same(found.folder, state)
        if (state.progress.scale is None) != (self.progress.scale is None):
            raise ArtefactError(f"{quoted(found.folder / TRAINING)}: a loss scale belongs to fp16 alone")
        tensors = read_tensors(found.path(TRAINING_TENSORS))
        place = found.folder / TRAINING_TENSORS
        if state.progress.update > state.progress.skipped:
            begin(self.optimizer)
        put_optimizer(self.optimizer, tensors, state.optimizer, place)
        put_weights(self.model, read_tensors(found.path(WEIGHTS)), found.folder)
        self.schedule.load_state_dict(state.schedule)
        self.progress, self.saved = state.progress, asdict(state.progress)
        self.report.cut(state.metrics_offset)
        self.minutes_before, self.started = state.minutes, time.monotonic()
        return True

    def _newest(self) -> Artefact | None:
        """The newest whole checkpoint, which the leader chooses; damaged ones after it lose their names."""
        found: Artefact | None = None
        if self.world.leads:
            self.checkpoints.folder.mkdir(parents=True, exist_ok=True)
            sweep(self.checkpoints.folder)
            found = self.checkpoints.newest_valid()
            for newer in self.checkpoints.all():  # never to be mistaken for what follows from here
                if found is not None and update_of(newer) > update_of(found.folder):
                    newer.rename(_free_name(newer))
        name = self.world.gather(found.folder.name.encode() if found else b"")[0].decode()
        return found or (Artefact(self.checkpoints.folder / name, "checkpoint") if name else None)

    def check_same(self, folder: Path, state: "Saved") -> None:
        """UserError when settings that change the mathematics differ, ArtefactError when the data does."""
        old, new = state.settings, dict(self.settings)
        rows = [
            f"{key}: {old.get(key)} -> {new.get(key)}" for key in sorted({*old, *new}) if old.get(key) != new.get(key)
        ]
        if rows:
            raise UserError(
                f"{quoted(self.folder)}: its settings differ from those it was trained with ({'; '.join(rows)}); "
                "keep them, or name another --output"
            )
        if state.data != self.data.fingerprint:
            raise ArtefactError(f"{quoted(folder)}: was trained on other data than {quoted(self.options.data)}")

    def save(self, last: bool) -> None:
        """Write a checkpoint of this update and delete those that are not to be kept.

        A failed save leaves the older checkpoints as they were and is told; the third in a row, or the last one, is a
        ResourceError.
        """
        path = self.checkpoints.path(self.progress.update)
        try:
            if self.saved != asdict(self.progress):
                self._write(path, *self._state())
            self.saved, self.failed_saves = asdict(self.progress), 0
        except ResourceError as error:
            self.failed_saves += 1
            if last or self.failed_saves > SAVES_THAT_MAY_FAIL:
                raise
            log.warn(f"checkpoint of update {self.progress.update} not saved: {error}")
            return
        if self.world.leads:
            self.checkpoints.prune(self.options.keep_last, self.options.keep_best)

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
        """The weights, and the optimizer's tensors and plain values, put together from all ranks."""
        tensors, plain = flat_optimizer(self.optimizer)
        return self._gathered(weights_of(self.model)), self._gathered(tensors), plain

    def _gathered(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Tensors in full; of sharded ones one after the other is put together, and only the leader keeps it, on the CPU."""
        found = {}
        for name, tensor in tensors.items():
            full = whole(tensor)
            if self.world.leads:
                found[name] = tensor if full is tensor else full.cpu()
        return found

    def _write(self, path: Path, weights: dict[str, Tensor], tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        if not self.world.leads:
            return
        refuse_not_finite(weights, path)
        minutes = round(self.minutes, 3)
        state = Saved(
            progress=self.progress,
            minutes=minutes,
            settings=dict(self.settings),
            data=self.data.fingerprint,
            optimizer=plain,
            schedule=self.schedule.state_dict(),
            metrics_offset=self.report.offset(),
        )
        facts = {
            "update": self.progress.update,
            "minutes": minutes,
            "flops": self.progress.flops,
            "cost_is_measured": self.model.cost_is_measured,
            "settings": sha256(to_json(dict(self.settings))).hexdigest(),
            "torch": str(torch.__version__),
            "threads": torch.get_num_threads(),
            "matmul": self.progress.limit.matmul,
            "ranks": self.world.size,
            "data": self.data.fingerprint,
            "vocabulary": self.data.pipeline.hash,
        }
        with new_folder(path, "checkpoint", facts) as folder:
            write_model(folder, weights, self.facts, self.data.pipeline)
            write_tensors(folder / TRAINING_TENSORS, tensors)
            write_file(folder / TRAINING, to_json(asdict(state)))


@dataclass(frozen=True, kw_only=True)
class Saved:
    """training.json: all that a checkpoint keeps beside tensors."""

    progress: Progress
    minutes: float
    settings: dict[str, Any]
    data: str
    optimizer: dict[str, Any]
    schedule: dict[str, Any]
    metrics_offset: int

    @classmethod
    def read(cls, checkpoint: Artefact) -> "Saved":
        """Raises ArtefactError when it is not what a run writes."""
        try:
            state = msgspec.convert(_with_current_names(checkpoint.json(TRAINING)), cls)
        except msgspec.ValidationError as error:
            raise ArtefactError(f"{quoted(checkpoint.folder / TRAINING)}: not the state of a run: {error}") from None
        position = state.progress.position
        counts = (state.metrics_offset, position.pairs, state.progress.flops)
        if min(state.progress.update, position.epoch, *(count + 1 for count in counts)) < 1:
            raise ArtefactError(f"{quoted(checkpoint.folder / TRAINING)}: not the state of a run: a count is negative")
        return state


def _with_current_names(state: Any) -> Any:
    """The content of training.json with the names of fields that version 0.1 wrote differently at first."""
    progress = state.get("progress") if isinstance(state, dict) else None
    if not isinstance(progress, dict) or not isinstance(progress.get("found"), dict):
        return state
    limit = {{"holds": "max_micro_batch_tokens"}.get(key, key): value for key, value in progress["found"].items()}
    renamed = {key: value for key, value in progress.items() if key != "found"} | {"limit": limit}
    return {**state, "progress": renamed}


def _free_name(folder: Path) -> Path:
    """A name for a damaged checkpoint, beside it, that nothing has yet."""
    names = (folder.with_name(f"damaged-{folder.name}{end}") for end in ("", *(f".{i}" for i in range(1, 1000))))
    return next(name for name in names if not name.exists())


def update_seed(seed: int, update: int, rank: int) -> int:
    """The seed of the draws (dropout's, for one) of an update on a rank: no random state has to outlive an update."""
    return int.from_bytes(sha256(f"{seed} {update} {rank}".encode()).digest()[:8], "little", signed=True)
