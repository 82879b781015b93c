"""A training run on disk and in memory: its options, its parts, and what a checkpoint keeps of it."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from nmt import UserError, opt
from nmt.artefact import new_folder, sweep, to_json, write_file
from nmt.checkpoint import (
    TRAINING,
    TRAINING_TENSORS,
    WEIGHTS,
    Checkpoints,
    ModelFacts,
    flat_optimizer,
    put_optimizer,
    put_weights,
    read_tensors,
    weights_of,
    write_model,
    write_tensors,
)
from nmt.criteria.base import Criterion
from nmt.data.loader import Loader, Position
from nmt.data.shards import PreparedData
from nmt.device import Precision
from nmt.errors import ArtefactError, ResourceError, quoted
from nmt.log import log
from nmt.models.base import Model
from nmt.options import REQUIRED
from nmt.report import Report
from nmt.schedules.base import Schedule
from nmt.train.every import Period

SAVES_THAT_MAY_FAIL: Final = 2


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The trainer's own options; those of the parts stand beside them."""

    data: str = opt(REQUIRED, "prepared data (nmt prepare)")
    output: str = opt(REQUIRED, "run folder; a run that is there goes on", aliases=("o", "save-dir"))
    batch_tokens: int = opt(25000, "target tokens of an update, for the whole world; 25000 in the paper")
    max_tokens: int = opt(4096, "tokens, padding counted, that a device holds at once; changes no result")
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
    best_by: str = opt("bleu", "what makes a checkpoint the best: bleu or loss")
    patience: int | None = opt(None, "stop after this many validations without a new best", aliases=("early-stopping",))
    valid_set: str | None = opt(None, "name of the development set in the data; none is the first")
    valid_bleu: bool = opt(True, "translate the development set at each validation")
    valid_batch_tokens: int = opt(2000, "source tokens of a batch while the development set is translated")
    bleu_tokenize: str = opt("13a", "sacreBLEU's tokenizer for validation; none for text that is tokenised already")
    clip_norm: float = opt(0.0, "largest 2-norm of the gradient; 0 does not clip, as the paper")
    precision: Precision = opt("fp32", "fp32, or bf16 products by autocast with fp32 weights")
    device: str = opt("auto", "auto, cpu, cuda or cuda:N")
    threads: int | None = opt(None, "threads for CPU work; none leaves it to torch")
    seed: int = opt(1, "of weights, dropout and the order of data")
    tensorboard: bool = opt(False, "write events for TensorBoard to RUN/tensorboard")

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "max_tokens", "valid_batch_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("save_every", "valid_every", "log_every"):
            try:
                Period.parse(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        if self.best_by not in ("bleu", "loss"):
            raise ValueError(f"best_by is '{quoted(self.best_by)}'; wanted bleu or loss")
        if self.best_by == "bleu" and not self.valid_bleu:
            raise ValueError("best_by is 'bleu' but valid_bleu is off; set best_by to loss")


MATHEMATICS: Final = ("batch_tokens", "clip_norm", "precision", "seed")  # of TrainOptions; the parts' options all count


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
    score: float | None = None  # of the last validation, when it was at this very update

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Progress":
        return cls(**{**values, "position": Position(**values["position"])})


@dataclass
class Run:
    """Everything one training run works with."""

    options: TrainOptions
    settings: Mapping[str, Any]  # those that change the mathematics, by key
    folder: Path
    data: PreparedData
    facts: ModelFacts
    model: Model
    criterion: Criterion
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    loader: Loader
    report: Report
    checkpoints: Checkpoints
    progress: Progress
    failed_saves: int = 0
    saved: tuple[int, float | None] | None = None  # update and score of the newest checkpoint
    minutes_before: float = 0.0  # of training, before this process
    started: float = field(default_factory=time.monotonic)

    @property
    def minutes(self) -> float:
        """Minutes of training so far, in this process and those before it."""
        return self.minutes_before + (time.monotonic() - self.started) / 60

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def resume(self) -> bool:
        """Go back to the newest whole checkpoint; False when the run has none.

        Raises UserError when settings that change the mathematics differ, ArtefactError when the data does.
        """
        self.checkpoints.folder.mkdir(parents=True, exist_ok=True)
        sweep(self.checkpoints.folder)
        found = self.checkpoints.newest_valid()
        if found is None:
            self.report.cut(0)
            return False
        state = found.json(TRAINING)
        self._check_same(found.folder, state)
        put_weights(self.model, read_tensors(found.path(WEIGHTS)), found.folder)
        tensors = read_tensors(found.path(TRAINING_TENSORS))
        randoms = {name: tensors.pop(name) for name in list(tensors) if name.startswith("random.")}
        put_optimizer(self.optimizer, tensors, state["optimizer"])
        put_random_state(randoms)
        self.schedule.load_state_dict(state["schedule"])
        self.progress = Progress.from_json(state["progress"])
        self.saved = (self.progress.update, self.progress.score)
        self.report.cut(state["metrics_offset"])
        self.minutes_before, self.started = float(found.manifest["minutes"]), time.monotonic()
        for newer in self.checkpoints.all():  # damaged ones: never to be mistaken for what follows from here
            if int(newer.name.rpartition("-")[2]) > self.progress.update:
                newer.rename(newer.with_name(f"damaged-{newer.name}"))
        return True

    def _check_same(self, folder: Path, state: Mapping[str, Any]) -> None:
        old, new = state["settings"], dict(self.settings)
        rows = [
            f"{key}: {old.get(key)} -> {new.get(key)}" for key in sorted({*old, *new}) if old.get(key) != new.get(key)
        ]
        if rows:
            raise UserError(
                f"{quoted(self.folder)}: its settings differ from those it was trained with ({'; '.join(rows)}); "
                "keep them, or name another --output"
            )
        if state["data"] != self.data.fingerprint:
            raise ArtefactError(f"{quoted(folder)}: was trained on other data than {quoted(self.options.data)}")

    def save(self, last: bool) -> None:
        """Write a checkpoint of this update and delete those that are not to be kept.

        A failed save leaves the older checkpoints as they were and is told; the third in a row, or the last one, is a
        ResourceError.
        """
        path = self.checkpoints.path(self.progress.update)
        try:
            if self.saved != (self.progress.update, self.progress.score):
                self._write(path)
            self.saved, self.failed_saves = (self.progress.update, self.progress.score), 0
        except ResourceError as error:
            self.failed_saves += 1
            if last or self.failed_saves > SAVES_THAT_MAY_FAIL:
                raise
            log.warn(f"checkpoint of update {self.progress.update} not saved: {error}")
            return
        self.checkpoints.prune(self.options.keep_last, self.options.keep_best)

    def _write(self, path: Path) -> None:
        weights = weights_of(self.model)
        broken = [name for name, tensor in weights.items() if not bool(torch.isfinite(tensor).all())]
        if broken:
            raise ArtefactError(
                f"update {self.progress.update}: weights are not finite, first in '{broken[0]}'; not saved"
            )
        tensors, plain = flat_optimizer(self.optimizer)
        state = {
            "progress": self.progress.to_json(),
            "score": self.progress.score,
            "settings": dict(self.settings),
            "data": self.data.fingerprint,
            "optimizer": plain,
            "schedule": self.schedule.state_dict(),
            "metrics_offset": self.report.offset(),
        }
        facts = {
            "update": self.progress.update,
            "minutes": round(self.minutes, 3),
            "torch": str(torch.__version__),
            "threads": torch.get_num_threads(),
            "ranks": 1,
            "data": self.data.fingerprint,
            "vocabulary": self.data.pipeline.hash,
        }
        with new_folder(path, "checkpoint", facts) as folder:
            write_model(folder, weights, self.facts, self.data.pipeline)
            write_tensors(folder / TRAINING_TENSORS, {**tensors, **random_state()})
            write_file(folder / TRAINING, to_json(state))


def random_state() -> dict[str, Tensor]:
    """Every random state that training draws from."""
    states = {"random.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"random.cuda.{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def put_random_state(states: Mapping[str, Tensor]) -> None:
    """Give back what random_state took; a GPU that was not there then keeps its own."""
    torch.set_rng_state(states["random.cpu"])
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            if f"random.cuda.{i}" in states:
                torch.cuda.set_rng_state(states[f"random.cuda.{i}"], i)
