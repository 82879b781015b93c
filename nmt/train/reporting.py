"""What a training run reports: a record of each update, log lines, and its settings file."""

import time
from typing import Any, Final

import torch

from nmt.artefact import write_file
from nmt.data.loader import UpdateBatches
from nmt.errors import DivergedError
from nmt.models.base import Model
from nmt.options import as_dict, toml_line
from nmt.report.training import SHOWN_AS, LogWindow, RunStatus
from nmt.train.options import AUTO, MIN_BLEU, Timer
from nmt.train.run import Run
from nmt.train.update import Stats
from nmt.train.validation import ValidationResult

SETTINGS: Final = "settings.toml"
NOT_SETTINGS: Final = ("json", "dry_run")  # options of one call of the command, not of the run
MAX_SKIPPED_UPDATES: Final = 10  # in a row


class UpdateLog:
    """Records updates, and logs them in windows.

    timers: when the next validation and the next checkpoint are due, by name
    """

    def __init__(self, run: Run, timers: dict[str, Timer]) -> None:
        self.run, self.timers = run, timers
        self.window, self.share_before = LogWindow(), run.share or 0.0
        self.max_tokens = run.progress.limit.max_micro_batch_tokens
        self.start_clock()

    def start_clock(self) -> None:
        """Count the seconds from now on to the next update; those of validation and saving belong to none."""
        self.began = time.monotonic()

    def add(self, stats: Stats, data: UpdateBatches) -> None:
        """Record an update. Raises DivergedError after too many updates in a row that could not be applied."""
        run, progress = self.run, self.run.progress
        if (max_tokens := progress.limit.max_micro_batch_tokens) < self.max_tokens:
            run.report.line(
                f"update {progress.update}: out of memory with micro-batches of up to {self.max_tokens:,} tokens; it was made "
                f"with at most {max_tokens:,} each, like those to come: the same gradient, but for dropout's draws"
            )
            self.max_tokens = max_tokens
        flops = flops_of(run.model, data)
        progress.flops += flops
        progress.skipped += not stats.applied
        if stats.applied:
            progress.skipped_in_a_row = 0
        elif progress.scale is None or progress.scale.factor == 1:  # else the scale was to blame, and is smaller now
            progress.skipped_in_a_row += 1
        sums = {"target_tokens": stats.tokens, "eflop": progress.flops / 10**18}
        rates = {"lr": run.schedule(progress.update), "gradient_norm": stats.gradient_norm}
        numbers = {**stats.losses.means(), **sums, **rates, "skipped": progress.skipped}
        run.report.record({"update": progress.update, "epoch": progress.epoch, **numbers})
        if progress.skipped_in_a_row == MAX_SKIPPED_UPDATES:
            why = f"loss or gradient not finite {MAX_SKIPPED_UPDATES} times in a row"
            run.report.line(f"stopped: diverged at update {progress.update}")
            raise DivergedError(
                f"update {progress.update}: {why}; the checkpoints are kept (begin anew in another --output, with a lower --lr, "
                "more --warmup-updates or --clip-norm 1: this run cannot change them)"
            )
        add_update(self.window, stats, flops, time.monotonic() - self.began)

    def write(self, stats: Stats) -> None:
        """Log the updates since the last call. stats: of the last update"""
        run, progress, share = self.run, self.run.progress, self.run.share
        to_do = None if share is None else (share - self.share_before) / max(1 - self.share_before, 1e-9)
        left = {name: self._seconds_left(timer) for name, timer in self.timers.items()}
        rate = run.schedule(progress.update)
        status = RunStatus(progress.update, progress.epoch, rate, stats.gradient_norm, progress.flops, to_do, left)
        run.report.training(status, self.window)
        self.window = LogWindow()

    def _seconds_left(self, timer: Timer) -> float:
        """Seconds until a timer is due, at the speed of the last updates."""
        run, per_update = self.run, self.window.seconds / self.window.updates
        per_epoch = per_update * run.progress.update / max(run.epochs, 1e-9)
        return timer.seconds_left(run.progress.update, run.epochs, run.seconds, per_update, per_epoch)


def flops_of(model: Model, data: UpdateBatches) -> int:
    """The FLOPs of an update on this data, over all ranks."""
    return model.training_flops(torch.from_numpy(data.source_lengths), torch.from_numpy(data.target_lengths))


def add_update(window: LogWindow, stats: Stats, flops: int, seconds: float) -> None:
    """Add an update to a window's sums."""
    window.updates += 1
    window.seconds += seconds
    window.real_tokens += stats.real
    window.cells += stats.cells
    window.flops += flops
    window.skipped += not stats.applied
    if stats.applied:
        window.target_tokens += stats.tokens
        window.losses.add(stats.losses)


def report_validation(run: Run, result: ValidationResult, better: bool, sign: float) -> None:
    """Record and log a validation. better: whether it is the best so far; sign: of the score that is compared"""
    progress = run.progress
    parts = {name: mean for name, mean in result.losses.items() if name not in SHOWN_AS}
    metrics = {"bleu": None, **{name: score.value for name, score in result.metrics.items()}}
    values = {"loss": result.loss, "ppl": result.perplexity, **metrics, **parts}
    run.report.record({"update": progress.update, **{f"valid_{name}": value for name, value in values.items()}})
    text = f"loss {result.loss:.4f}"
    if "nll" in result.losses:
        text += f" nats/token : ppl {result.perplexity:.3f}"
    text += "".join(f" : {name} {mean:.4f}" for name, mean in parts.items())
    scores = result.metrics.items()
    text += "".join(f" : {name.upper()} {score.value:.2f} ({score.signature})" for name, score in scores)
    best = "none" if progress.best is None else f"{sign * progress.best:.4f}"
    state = "new best" if better else f"stalled {progress.stalled} times (best {progress.judged_by}: {best})"
    text = f"[valid] Ep. {progress.epoch} : Up. {progress.update} : {text} : {state}"
    numbers = {name: value for name, value in values.items() if value is not None}
    run.report.validation(progress.update, text, numbers, result.examples)


def announce(run: Run) -> None:
    """Log what is trained, on which devices and data, and from which update on."""
    report, progress = run.report, run.progress
    name, ranks = run.facts.model, run.world.size
    devices = f"{ranks} x {run.device.type}" if ranks > 1 else f"{run.device}"
    report.line(
        f"{name}: {run.model.num_parameters():,} parameters on {devices} ({run.options.precision}); "
        f"{len(run.data.train):,} pairs, {run.loader.updates_per_epoch():,} updates an epoch"
    )
    if run.model.cost_is_measured:
        report.line(f"the cost of a pair is measured at a few lengths and interpolated: {name} has no flops of its own")
    if run.validation is None:
        report.line(
            "no development set: nothing tells which checkpoint is the best, and the newest is used (nmt prepare --valid)"
        )
    elif run.settings["best_by"] == AUTO and "bleu" in run.validation.metrics and progress.judged_by == "loss":
        report.line(f"the best checkpoint is judged by loss until BLEU is above {MIN_BLEU:g}, then by BLEU (--best-by)")
    if progress.update:
        report.line(f"going on after update {progress.update} (epoch {progress.position.epoch})")
    if run.end is not None and not progress.validation_due:
        how = f"raise --{run.end[0].replace('_', '-')} to go on"
        if run.end[0] in run.settings:  # the schedule depends on it
            how = f"--schedule {run.settings['schedule']} ends there: to train longer, begin anew in another --output"
        report.line(f"nothing to do: the run ended at update {progress.update} ({how})")


def conclude(run: Run) -> None:
    """Log why the run ended, which checkpoint is the best, and how to use it."""
    if run.options.compile:
        from torch._dynamo.utils import counters

        run.report.line(f"torch.compile made {counters['stats']['unique_graphs']} graphs")
    progress = run.progress
    if run.end is not None:
        best = "" if progress.best is None else f"; best {_score_text(run, progress.judged_by, progress.best)}"
        at = f" at update {progress.best_update}" if best and progress.best_update else ""
        run.report.line(f"stopped: {run.end[1]}{best}{at}")
    if (chosen := run.checkpoints.best()) is not None:
        score, name = run.checkpoints.score(chosen), run.checkpoints.judged_by(chosen)
        text = f"newest checkpoint: {chosen}"
        if score is not None and name is not None:
            text = f"best checkpoint: {chosen} ({_score_text(run, name, score)})"
        run.report.line(f"{text}; nmt translate --model {run.folder} uses it")


def _score_text(run: Run, name: str, score: float) -> str:
    """A score by name, as the metric or the loss has it. score: higher is better"""
    sign = run.validation.sign(name) if run.validation else 1.0
    return f"{name} {sign * score:.4f}"


def save_settings(run: Run, parts: Any) -> None:
    """Write all settings as TOML, so that `nmt train --config RUN/settings.toml` continues the run."""
    if run.world.leads and not run.finished:
        settings = (as_dict(run.options) | parts.as_dict()).items()
        lines = (f"{toml_line(key, value)}\n" for key, value in settings if key not in NOT_SETTINGS)
        write_file(run.folder / SETTINGS, "".join(lines).encode())
