"""What a training run reports: a record of each update, log lines, and its settings file."""

import errno
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

from nmt.data.loader import UpdateBatches
from nmt.device import Memory
from nmt.errors import DivergedError, Interrupted, UserError, is_out_of_memory, one_line
from nmt.files import write_file
from nmt.models.base import Model
from nmt.options import as_dict, flag_of, toml_line
from nmt.report.saved_status import EndReason
from nmt.report.status import LOSS_TEXT_PARTS, LogWindow, RunStatus, loss_text
from nmt.schedules.base import Schedule, rises_at
from nmt.train.options import AUTO, MIN_BLEU, Timer, last_update
from nmt.train.run import Run
from nmt.train.update import Stats
from nmt.train.validation import ValidationResult

SETTINGS: Final = "settings.toml"
NOT_SETTINGS: Final = ("json", "dry_run")  # options of one call of the command, not of the run
EARLY_UPDATES: Final = (1, 2, 5, 10)  # of this process, each with a log line: a slow machine shows soon that it works
MIN_SHOWN_UPDATES: Final = 5  # fewer have no steady loss and speed: the display then has those of the last log line


class UpdateLog:
    """Records updates, and logs them in windows.

    timers: when the next validation and the next checkpoint are due, by name
    """

    def __init__(self, run: Run, timers: dict[str, Timer]) -> None:
        self.run, self.timers = run, timers
        self.window, self.first = LogWindow(), run.progress.update
        self.updates_per_epoch = run.loader.updates_per_epoch()
        self.memory, self.best = Memory(run.device), best_checkpoint(run)
        self.shown = self.window
        self.max_tokens = run.progress.limit.max_micro_batch_tokens
        self.began = self.timed_from = time.monotonic()

    @property
    def made(self) -> int:
        """Updates since this log began."""
        return self.run.progress.update - self.first

    def add(self, stats: Stats, data: UpdateBatches) -> None:
        """Record an update."""
        run, progress = self.run, self.run.progress
        if (max_tokens := progress.limit.max_micro_batch_tokens) < self.max_tokens:
            run.report.line(
                f"update {progress.update}: out of memory with micro-batches of up to {self.max_tokens:,} tokens; it was made "
                f"with at most {max_tokens:,} each, like those to come: the same gradient, but for dropout's draws"
            )
            self.max_tokens = max_tokens
        flops = flops_of(run, data)
        progress.flops += flops
        progress.skipped += not stats.applied
        if stats.applied:
            progress.skipped_in_a_row = 0
        elif progress.scale is None or progress.scale.factor == 1:  # else the scale was to blame, and is smaller now
            progress.skipped_in_a_row += 1
        if stats.applied or progress.skipped_in_a_row:
            progress.watch.see(progress.update, stats.losses.loss, stats.applied)
        sums = {"target_tokens": stats.tokens, "eflop": progress.flops / 10**18}
        rates = {"lr": run.learning_rate(progress.update), "gradient_norm": stats.gradient_norm}
        numbers = {**stats.losses.means(), **sums, **rates, "skipped": progress.skipped}
        if progress.rollbacks:
            numbers["rollbacks"] = len(progress.rollbacks)
        run.report.record({"update": progress.update, "epoch": progress.epoch, **numbers})
        now = time.monotonic()
        if self.made == 1:  # it takes longer than others, and no estimate is based on it
            self.timed_from = now
        add_update(self.window, stats, flops, now - self.began)
        if run.report.is_due():
            if self.window.updates >= MIN_SHOWN_UPDATES:
                self.shown = self.window
            run.report.show(self._status(stats), self.shown)

    def see_checkpoint(self) -> None:
        """Look at the checkpoints after a save. The first one is logged, with the command that uses it."""
        first, self.best = self.best is None, best_checkpoint(self.run)
        if first and self.best is not None and not self.run.finished:
            name, folder = self.best[0].name, self.run.folder
            self.run.report.line(f"saved {name}; to try the model meanwhile: nmt translate --model {folder}")

    def write(self, stats: Stats) -> None:
        """Log the updates since the last call. stats: of the last update"""
        self.shown = self.window
        self.run.report.training(self._status(stats), self.window)
        self.window = LogWindow()

    def _status(self, stats: Stats) -> RunStatus:
        run, progress = self.run, self.run.progress
        total, seconds_left = self._end()
        per_update = self.window.seconds / self.window.updates  # of the last updates
        speeds = per_update, per_update * self.updates_per_epoch
        so_far = progress.update, run.epochs, run.seconds
        return RunStatus(
            update=progress.update,
            epoch=progress.epoch,
            epochs=run.epochs,
            learning_rate=run.learning_rate(progress.update),
            gradient_norm=stats.gradient_norm,
            flops=progress.flops,
            memory=self.memory.peak(),
            total=total,
            seconds_left=seconds_left,
            events={name: timer.seconds_left(*so_far, *speeds) for name, timer in self.timers.items()},
            best=None if self.best is None else self.best[0].name + (f" ({self.best[1]})" if self.best[1] else ""),
        )

    def _end(self) -> tuple[int | None, float | None]:
        """(updates of the whole run, seconds until its end), at the speed of this process; None where that is unknown."""
        run, update = self.run, self.run.progress.update
        seconds = None  # of an update
        if self.made > 1:
            seconds = (time.monotonic() - self.timed_from) / (self.made - 1)  # validation and saving count too
        last = last_update(run.options, self.updates_per_epoch, update, run.epochs, seconds, run.seconds)
        if last is None:
            return None, None
        last = max(last, update)
        if last == update:
            return last, 0.0
        return last, None if seconds is None else (last - update) * seconds


def certain_end(run: Run) -> int | None:
    """The last update by --max-updates and --max-epochs, whatever the speed; None without either."""
    options = replace(run.options, max_minutes=None)
    so_far = run.loader.updates_per_epoch(), run.progress.update, run.epochs
    return last_update(options, *so_far, seconds=None, seconds_so_far=0.0)


def flops_of(run: Run, data: UpdateBatches, model: Model | None = None) -> int:
    """The FLOPs of an update on this data, over all ranks. model: instead of the run's"""
    lengths = torch.from_numpy(data.source_lengths), torch.from_numpy(data.target_lengths)
    return run.criterion.training_flops(model or run.model, *lengths)


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
    metrics = {"bleu": None, **{name: score.value for name, score in result.metrics.items()}}
    nll = {"nll": result.losses["nll"]} if "nll" in result.losses else {}
    values = {"loss": result.losses["loss"], "ppl": result.perplexity, **metrics, **nll, **_other_parts(result)}
    run.report.record({"update": progress.update, **{f"valid_{name}": value for name, value in values.items()}})
    best = "none" if progress.best is None else f"{sign * progress.best:.4f}"
    times = f" for {progress.stalled} in a row" if progress.stalled else ""
    state = "new best" if better else f"not the best{times} (best {progress.judged_by}: {best})"
    _log_validation(run, result, state)


def report_look(run: Run, result: ValidationResult) -> None:
    """Log a validation that is due by the clock alone. metrics.jsonl, which has no times, does not get it."""
    _log_validation(run, result, "between the regular validations, and without effect on them")


def _log_validation(run: Run, result: ValidationResult, state: str) -> None:
    """Log a validation. state: what follows from it"""
    progress, scores = run.progress, result.metrics.items()
    text = loss_text(result.losses["loss"], result.losses.get("nll"), digits=3)
    text += "".join(f" : {name} {mean:.4f}" for name, mean in _other_parts(result).items())
    text += "".join(f" : {name.upper()} {score.value:.2f} ({score.signature})" for name, score in scores)
    text = f"[valid] Ep. {progress.epoch} : Up. {progress.update} : {text} : {state}"
    numbers = {**result.losses, "ppl": result.perplexity, **{name: score.value for name, score in scores}}
    run.report.validation(progress.update, text, numbers, result.examples)


def _other_parts(result: ValidationResult) -> dict[str, float]:
    """The parts of a loss that `loss_text` leaves out."""
    return {name: mean for name, mean in result.losses.items() if name not in LOSS_TEXT_PARTS}


def _doubts(run: Run) -> Iterator[str]:
    """Settings that work together worse than they could."""
    yield from run.criterion.doubts(run.settings, is_new=run.is_new)
    optimizer, schedule = run.settings["optimizer"], run.settings["schedule"]
    if hasattr(run.optimizer, "averaged") and schedule != "constant":
        yield f"--optimizer {optimizer} needs no decay, and --schedule {schedule} has one (--schedule constant)"
    if (last := certain_end(run)) is not None and rises_at(run.schedule, last):
        yield f"the learning rate still rises at update {last:,}, where the run ends: the warm-up is too long for it"
    if run.validation is None and type(run.schedule).see is not Schedule.see:
        yield f"--schedule {schedule}: looks at validations, and there are none (nmt prepare --valid)"


def announce(run: Run) -> None:
    """Log what is trained, on which devices and data, and from which update on."""
    report, progress = run.report, run.progress
    name, ranks = run.facts.model, run.world.size
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    devices = f"{ranks} x {run.device.type}" if ranks > 1 else f"{run.device}"
    report.line(
        f"{name}: {parameter_text(parameters, run.model.num_parameters())} on {devices} ({run.options.precision}); "
        f"{len(run.data.train):,} pairs, {run.loader.updates_per_epoch():,} updates an epoch"
    )
    for line in run.loader.mixture.lines() if run.loader.mixture else ():
        report.line(line)
    if run.model.cost_is_measured:
        report.line(f"the cost of a pair is measured at a few lengths and interpolated: {name} has no flops of its own")
    if run.options.ema:
        report.line(f"--ema {run.options.ema:g}: validations and checkpoints take the moving average of the weights")
    for line in _doubts(run):
        report.line(line)
    if run.validation is None:
        report.line(
            "no development set: nothing tells which checkpoint is the best, and the newest is used (nmt prepare --valid)"
        )
    elif run.settings["best_by"] == AUTO and "bleu" in run.validation.metrics and progress.judged_by == "loss":
        report.line(f"the best checkpoint is judged by loss until BLEU is above {MIN_BLEU:g}, then by BLEU (--best-by)")
    if progress.update:
        report.line(f"going on after update {progress.update} (epoch {progress.position.epoch})")
    if run.end is not None and not progress.validation_due:
        how = f"raise {flag_of(run.end[0])} to go on"
        if run.end[0] in run.settings:  # the schedule depends on it
            how = f"--schedule {run.settings['schedule']} ends there: to train longer, begin anew in another --output"
        report.line(f"nothing to do: the run ended at update {progress.update} ({how})")


def parameter_text(parameters: int, trainable: int) -> str:
    """The number of a model's parameters, and of those that are trained if some are frozen."""
    return f"{parameters:,} parameters" + (f", {trainable:,} of them trained," if trainable < parameters else "")


def conclude(run: Run) -> None:
    """Log why the run ended, which checkpoint is the best, and how to use it."""
    for speedup in run.speedups:
        speedup.after_updates(run)
    progress = run.progress
    if run.end is not None:
        best = "" if progress.best is None else f"; best {_score_text(run, progress.judged_by, progress.best)}"
        at = f" at update {progress.best_update}" if best and progress.best_update else ""
        again = "; the same command trains as long again" if run.end[0] == "max_minutes" else ""
        run.report.line(f"stopped: {run.end[1]}{best}{at}{again}")
    if found := best_checkpoint(run):
        folder, score = found
        named = f"best checkpoint: {folder} ({score})" if score else f"newest checkpoint: {folder}"
        run.report.line(f"{named}; nmt translate --model {run.folder} uses it")


def best_checkpoint(run: Run) -> tuple[Path, str] | None:
    """The checkpoint that a run's folder stands for, and its score as text, if it has one; None before the first."""
    if not run.world.leads or (folder := run.checkpoints.best()) is None:
        return None
    score, name = run.checkpoints.score(folder), run.checkpoints.judged_by(folder)
    return folder, "" if score is None or name is None else _score_text(run, name, score)


def _score_text(run: Run, name: str, score: float) -> str:
    """A score by name, as the metric or the loss has it. score: higher is better"""
    sign = run.validation.sign(name) if run.validation else 1.0
    return f"{name} {sign * score:.4f}"


@contextmanager
def recorded_end(run: Run) -> Iterator[None]:
    """Save in the run folder that the run goes on and, in the end, why it ended."""
    run.report.write_status()
    try:
        yield
    except BaseException as error:
        run.report.end(*_reason_of_error(error, run.progress.update))
        raise
    option, why = run.end or ("", "")
    run.report.end("patience" if option == "patience" else "finished", why)


def what_is_saved(update: int) -> str:
    """What a run that stopped after an update has saved, as the end of a sentence."""
    return f"after update {update}, which is saved" if update else "before the first update was made; nothing is saved"


def _reason_of_error(error: BaseException, update: int) -> tuple[EndReason, str]:
    if isinstance(error, Interrupted):
        return "signal", f"stopped by {signal.Signals(error.signal_number).name} {what_is_saved(update)}"
    if isinstance(error, KeyboardInterrupt):
        return "signal", f"stopped at once by a second SIGINT after update {update}"
    message = one_line(str(error) or type(error).__name__)
    if isinstance(error, DivergedError):
        return "diverged", message
    causes = (error, error.__cause__)
    if any(isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT) for cause in causes):
        return "full disk", message
    if isinstance(error, Exception) and is_out_of_memory(error):
        return "out of memory", message
    return "error", message if isinstance(error, UserError) else f"{type(error).__name__}: {message}"


def save_settings(run: Run, parts: Any) -> None:
    """Write all settings as TOML, so that `nmt train --config RUN/settings.toml` continues the run."""
    if run.world.leads and not run.finished:
        settings = (as_dict(run.options) | parts.as_dict()).items()
        lines = (f"{toml_line(key, value)}\n" for key, value in settings if key not in NOT_SETTINGS)
        write_file(run.folder / SETTINGS, "".join(lines).encode(errors="surrogateescape"))
