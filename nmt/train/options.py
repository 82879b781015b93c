"""The options of `nmt train` and `nmt average`."""

import math
from typing import Final, Literal

from nmt import opt, options_class, registry
from nmt.dist import MAX_WAIT_MINUTES
from nmt.options import AUTO, MAX_PROCESSES, MAX_THREADS, REQUIRED, flag_of, names_of
from nmt.train.periods import parse_periods

MIN_BLEU: Final = 5.0  # below this BLEU, differences are mostly chance, so the loss ranks checkpoints more reliably


@registry.open_options_class(
    "start", "noise", "reporter", "preview", "plan", "training-speedup", shared=["metric"], declaring="in_training"
)
class TrainOptions:
    """The options of `nmt train`: its own and those of starts, noises, reporters, previews, plans and speedups.

    The options of a metric are included if its options class has `in_training`.

    A resumed run must keep the options that affect its results or the meaning of its scores: those declared with
    `must_stay`, and all options of its model, criterion, optimizer and schedule.
    """

    data: str = opt(REQUIRED, "data folder made by nmt prepare", group="Input and output", common=True, aliases=("d",))
    output: str = opt(
        REQUIRED,
        "run folder; the same command resumes it",
        group="Input and output",
        common=True,
        aliases=("o", "save-dir"),
        metavar="RUN",
    )
    max_updates: int | None = opt(
        100_000,
        "stop after this many updates",
        group="Length of the run",
        common=True,
        aliases=("max-update",),
        minimum=1,
    )
    max_epochs: int | None = opt(
        None,
        "stop after this many epochs",
        group="Length of the run",
        common=True,
        aliases=("max-epoch",),
        minimum=1,
    )
    max_minutes: float | None = opt(
        None,
        "stop this process after this many minutes",
        group="Length of the run",
        common=True,
        above=0,
        maximum=MAX_WAIT_MINUTES,
    )
    patience: int | None = opt(
        None,
        "stop after this many validations without a new best",
        group="Length of the run",
        common=True,
        aliases=("early-stopping",),
        minimum=1,
    )
    batch_tokens: int = opt(
        25000,
        "target tokens per update, over all devices",
        group="Batches",
        common=True,
        minimum=1,
        must_stay=True,
    )
    max_tokens: int | Literal["auto"] = opt(
        4096,
        "tokens per micro-batch, including padding",
        group="Batches",
        common=True,
        minimum=1,
    )
    seed: int = opt(
        1,
        "seed for weights, dropout and data order",
        group="Batches",
        common=True,
        minimum=0,
        below=2**63,
        must_stay=True,
    )
    device: str = opt("auto", "device to use: auto, cpu, cuda or cuda:N", group="Hardware", common=True)
    devices: int = opt(
        1,
        "number of devices to use, one process each",
        group="Hardware",
        common=True,
        minimum=1,
        maximum=MAX_PROCESSES,
    )
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = opt(
        "fp32",
        "number format: fp32, tf32, bf16 or fp16",
        group="Hardware",
        common=True,
        must_stay=True,
    )
    threads: int | None = opt(
        None,
        "CPU threads; if unset, as many as torch chooses",
        group="Hardware",
        minimum=1,
        maximum=MAX_THREADS,
    )
    engine: Literal["ddp", "fsdp"] = opt(
        "ddp",
        "with several devices, whether each holds the whole model (ddp) or a shard (fsdp)",
        group="Hardware",
    )
    timeout: float = opt(
        10.0,
        "minutes to wait for the other devices before failing",
        group="Hardware",
        above=0,
        maximum=MAX_WAIT_MINUTES,
    )
    valid_every: str = opt(
        "1000u,10m",
        "updates (u), epochs (e) or minutes (m)",
        group="Validation",
        common=True,
        aliases=("valid-freq",),
        metavar="PERIOD",
    )
    valid_metrics: tuple[str, ...] = opt(
        ("bleu",), "metrics to compute, such as bleu,chrf", group="Validation", common=True, metavar="METRIC"
    )
    valid_bleu: bool = opt(True, "compute BLEU at each validation", group="Validation")
    valid_set: str | None = opt(
        None,
        "name of the validation set to use; if unset, the first in the data folder",
        group="Validation",
        must_stay=True,
        metavar="NAME",
    )
    valid_batch_tokens: int = opt(
        2000, "source tokens per batch when translating the validation set", group="Validation", minimum=1
    )
    bleu_tokenize: str = opt(
        AUTO,
        "sacreBLEU tokenizer for validation; auto chooses by target language, 'none' expects tokenised text",
        group="Validation",
        aliases=("tokenize",),
        must_stay=True,
    )
    save_every: str = opt(
        "1000u",
        "updates (u), epochs (e) or minutes (m)",
        group="Checkpoints",
        common=True,
        aliases=("save-freq",),
        metavar="PERIOD",
    )
    keep_last: int = opt(10, "newest checkpoints to keep; 0 keeps all", group="Checkpoints", common=True, minimum=0)
    keep_best: int = opt(1, "number of best checkpoints to keep", group="Checkpoints", minimum=0)
    best_by: str = opt(
        AUTO,
        "score that selects the best checkpoint",
        group="Checkpoints",
        must_stay=True,
        metavar="SCORE",
    )
    on_divergence: Literal["stop", "rollback"] = opt(
        "stop",
        "when the loss diverges, stop or roll back to the last good checkpoint",
        group="Checkpoints",
    )
    clip_norm: float = opt(
        0.0,
        "clip the gradient to this 2-norm; 0 disables clipping",
        group="Regularization",
        minimum=0,
        must_stay=True,
    )
    log_every: str = opt(
        "100u,1m",
        "interval between log lines: updates (u), epochs (e) or minutes (m)",
        group="Logging",
        aliases=("log-freq",),
        metavar="PERIOD",
    )
    json: bool = opt(False, "at the end, print the state of the run and its best checkpoint as JSON", group="Logging")

    def __post_init__(self) -> None:
        for name in ("save_every", "valid_every", "log_every"):
            try:
                parse_periods(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"{flag_of(name)} {error}") from None
        if self.best_by == "bleu" and "bleu" not in self.metrics:
            raise ValueError(
                "--best-by bleu: validation does not compute BLEU (add bleu to --valid-metrics, or use --best-by loss)"
            )
        for key in registry.shared_values("metric", self):
            if not set(owners := registry.having("metric", key)) & set(self.metrics):
                raise ValueError(f"{flag_of(key)} has no effect without its metric (add --valid-metrics {owners[0]})")

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics to compute at validation, including the --best-by metric unless that is BLEU."""
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
    """Estimate the last update from the limit that is reached first; None if only patience ends the run, or if it is unknown.

    done, epochs: updates made and epochs read so far
    seconds: duration of an update, or None if unknown
    seconds_so_far: training time so far, as --max-minutes counts it
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
    output: str = opt(
        REQUIRED, "model folder to write", group="Input and output", common=True, aliases=("o",), metavar="MODEL"
    )
    run: str | None = opt(
        None,
        "run folder with the checkpoints to average",
        group="Input and output",
        common=True,
        excludes=("checkpoint",),
    )
    checkpoint: tuple[str, ...] = opt(
        (), "checkpoint or model folders to average", group="Input and output", common=True, metavar="FOLDER"
    )
    overwrite: bool = opt(False, "replace an existing model", group="Input and output", common=True)
    json: bool = opt(False, "print the averaged folders and their scores as JSON", group="Input and output")
    last: int | None = opt(
        None,
        "how many of the newest checkpoints to average",
        group="Checkpoints",
        common=True,
        minimum=1,
        needs=("run",),
        excludes=("best",),
    )
    best: int | None = opt(
        None,
        "how many of the best checkpoints to average",
        group="Checkpoints",
        common=True,
        minimum=1,
        needs=("run",),
    )
    every_minutes: float = opt(
        0.0,
        "minimum minutes of training between two averaged checkpoints",
        group="Checkpoints",
        minimum=0,
        needs=("last",),
    )
    score: str | None = opt(
        None,
        "data folder with a validation set to score on",
        group="Scoring",
        common=True,
    )
    max_tokens: int = opt(4096, "maximum tokens per scoring batch, including padding", group="Scoring", minimum=1)
    device: str = opt("auto", "device for scoring: auto, cpu, cuda or cuda:N", group="Scoring", common=True)
    threads: int | None = opt(
        None,
        "CPU threads; if unset, as many as torch chooses",
        group="Scoring",
        minimum=1,
        maximum=MAX_THREADS,
    )

    def __post_init__(self) -> None:
        if self.run is None and not self.checkpoint:
            raise ValueError("nothing to average (name a RUN folder, or use --checkpoint)")
        if self.run is not None and self.last is None and self.best is None:
            raise ValueError("RUN needs --last N or --best N")
