"""The options of `nmt train` and `nmt average`."""

import math
from typing import Final, Literal

from nmt import opt, options_class, registry
from nmt.dist import MAX_WAIT_MINUTES
from nmt.options import AUTO, MAX_PROCESSES, MAX_THREADS, REQUIRED, flag_of, names_of
from nmt.train.periods import parse_periods

MIN_BLEU: Final = 5.0  # below it, more BLEU is mostly chance, and the loss tells better checkpoints from worse


@registry.open_options_class(
    "start", "noise", "reporter", "preview", "plan", "training-speedup", shared=["metric"], declaring="in_training"
)
class TrainOptions:
    """The options of training itself, with those of starts, noises, reporters, previews, plans and speedups.

    The options of a metric are among them if its options class has `in_training`.

    A run that is resumed must keep what decides its mathematics and the meaning of its scores: the options that are declared
    with `must_stay`, and all of its model, criterion, optimizer and schedule.
    """

    data: str = opt(REQUIRED, "prepared data (nmt prepare)", aliases=("d",))
    output: str = opt(REQUIRED, "run folder; an existing run is continued", aliases=("o", "save-dir"))
    batch_tokens: int = opt(
        25000, "target tokens of an update, over all devices; 25000 in the paper", minimum=1, must_stay=True
    )
    max_tokens: int | Literal["auto"] = opt(
        4096,
        "tokens of a micro-batch on one device, padding counted, or auto; only dropout's draws and experts depend on it",
        minimum=1,
    )
    max_updates: int | None = opt(100_000, "stop after this many updates", aliases=("max-update",), minimum=1)
    max_epochs: int | None = opt(None, "stop after this many epochs", aliases=("max-epoch",), minimum=1)
    max_minutes: float | None = opt(
        None,
        "stop after this many minutes of this process; a last validation then comes on top",
        above=0,
        maximum=MAX_WAIT_MINUTES,
    )
    save_every: str = opt(
        "1000u",
        "write a checkpoint every 500u (updates), 1e (epochs) or 10m (minutes, from the start of the process on)",
        aliases=("save-freq",),
    )
    valid_every: str = opt(
        "1000u,10m",
        "validate every 500u, 1e or 10m; with 500u,10m at whichever comes first, but only updates and epochs count for "
        "--patience and the best checkpoint",
        aliases=("valid-freq",),
    )
    log_every: str = opt(
        "100u,1m",
        "write a log line every 100u, 1e or 1m, or at whichever of several comes first",
        aliases=("log-freq",),
    )
    keep_last: int = opt(10, "newest checkpoints to keep; 0 keeps all", minimum=0)
    keep_best: int = opt(1, "best checkpoints to keep", minimum=0)
    best_by: str = opt(
        AUTO,
        "score of the best checkpoint, and of --patience: a metric, loss, or a part of the loss; "
        f"auto is loss until BLEU is above {MIN_BLEU:g}, then BLEU",
        must_stay=True,
    )
    patience: int | None = opt(
        None,
        "stop after this many validations without a new best, by the score of --best-by",
        aliases=("early-stopping",),
        minimum=1,
    )
    valid_set: str | None = opt(None, "name of the development set in the data; none takes the first", must_stay=True)
    valid_metrics: tuple[str, ...] = opt(("bleu",), "metrics of each validation, `bleu,chrf`; none translates nothing")
    valid_bleu: bool = opt(True, "compute BLEU at each validation")
    valid_batch_tokens: int = opt(2000, "source tokens of a batch when the development set is translated", minimum=1)
    bleu_tokenize: str = opt(
        AUTO,
        "sacreBLEU's tokenizer for validation; auto follows the target language, none is for tokenised text",
        aliases=("tokenize",),
        must_stay=True,
    )
    clip_norm: float = opt(
        0.0, "largest 2-norm of the gradient; 0 does not clip, as the paper", minimum=0, must_stay=True
    )
    on_divergence: Literal["stop", "rollback"] = opt(
        "stop",
        "stop after ten losses in a row that are not finite; rollback goes on from the last checkpoint before, with other "
        "data and half the learning rate for 1,000 updates, also after twenty losses far above their mean, three times at most",
    )
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = opt(
        "fp32",
        "fp32, or bf16 or fp16 products with fp32 weights, or tf32 products (GPUs)",
        must_stay=True,
    )
    device: str = opt("auto", "auto, cpu, cuda or cuda:N")
    devices: int = opt(
        1,
        "processes on this machine, one device each (or start torchrun yourself)",
        minimum=1,
        maximum=MAX_PROCESSES,
    )
    engine: Literal["ddp", "fsdp"] = opt(
        "ddp", "for several devices: ddp, or fsdp for a model that does not fit on one"
    )
    timeout: float = opt(10.0, "minutes to wait for another device", above=0, maximum=MAX_WAIT_MINUTES)
    threads: int | None = opt(None, "threads for CPU work; none: torch's default", minimum=1, maximum=MAX_THREADS)
    seed: int = opt(1, "seed of weights, dropout and the order of data", minimum=0, below=2**63, must_stay=True)
    json: bool = opt(False, "at the end print the state of the run and its best checkpoint as JSON")

    def __post_init__(self) -> None:
        for name in ("save_every", "valid_every", "log_every"):
            try:
                parse_periods(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"{flag_of(name)} {error}") from None
        if self.best_by == "bleu" and "bleu" not in self.metrics:
            raise ValueError(
                "--best-by bleu: BLEU is not among the metrics of a validation (leave --best-by out, or name loss)"
            )
        for key in registry.shared_values("metric", self):
            if not set(owners := registry.having("metric", key)) & set(self.metrics):
                raise ValueError(f"{flag_of(key)}: has no effect here (give --valid-metrics {owners[0]})")

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics of a validation; the one that --best-by names is among them, but for BLEU."""
        names = [name for name in names_of(self.valid_metrics) if name != "none"]
        if self.best_by != "bleu" and self.best_by in registry.names("metric"):
            names.append(self.best_by)
        return [name for name in dict.fromkeys(names) if self.valid_bleu or name != "bleu"]


def last_update(
    options: TrainOptions,
    updates_per_epoch: int,
    done: int,
    epochs: float,
    seconds: float | None,
    seconds_so_far: float,
) -> int | None:
    """The last update, by the limit that ends the run first; None if nothing but patience ends it, or if that is unknown.

    done, epochs: updates made and epochs read so far
    seconds: of an update, None if it is unknown; seconds_so_far: of training, which --max-minutes counts
    """
    by_epochs = by_minutes = None
    if options.max_epochs is not None:
        by_epochs = done + math.ceil(max(options.max_epochs - epochs, 0.0) * updates_per_epoch)
    if options.max_minutes is not None:
        if seconds is None:
            return None
        by_minutes = done + math.ceil(max(60 * options.max_minutes - seconds_so_far, 0.0) / seconds)
    return min((end for end in (options.max_updates, by_epochs, by_minutes) if end is not None), default=None)


@options_class
class AverageOptions:
    output: str = opt(REQUIRED, "model folder to write", aliases=("o",))
    run: str | None = opt(None, "run folder whose checkpoints are averaged", excludes=("checkpoint",))
    last: int | None = opt(
        None,
        "the newest N checkpoints, or all if there are fewer",
        minimum=1,
        needs=("run",),
        excludes=("best",),
    )
    best: int | None = opt(
        None,
        "the N checkpoints with the best validation scores, or all if there are fewer",
        minimum=1,
        needs=("run",),
    )
    every_minutes: float = opt(
        0.0, "take only checkpoints this many minutes of training apart", minimum=0, needs=("last",)
    )
    checkpoint: tuple[str, ...] = opt((), "named checkpoint or model folders, instead of --run")
    score: str | None = opt(
        None, "prepared data: show the loss on its development set of each checkpoint and of the mean"
    )
    max_tokens: int = opt(4096, "tokens of a batch while scoring, padding counted", minimum=1)
    device: str = opt("auto", "device for scoring: auto, cpu, cuda or cuda:N")
    threads: int | None = opt(None, "threads for CPU work; none: torch's default", minimum=1, maximum=MAX_THREADS)
    overwrite: bool = opt(False, "replace an existing model")
    json: bool = opt(False, "print the averaged folders and the scores (null if not finite) as JSON")

    def __post_init__(self) -> None:
        if self.run is None and not self.checkpoint:
            raise ValueError("give either --run or --checkpoint")
        if self.run is not None and self.last is None and self.best is None:
            raise ValueError("--run: give one of --last N and --best N")
