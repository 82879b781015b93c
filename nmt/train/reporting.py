"""Messages about a run (what it trains, its validations and why it ended), and its settings file."""

import errno
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt import registry
from nmt.columns.base import column_kind
from nmt.errors import DivergedError, Interrupted, UserError, is_out_of_memory, one_line
from nmt.files import write_file
from nmt.options import AUTO, as_dict, flag_of, toml_line
from nmt.report.run_status import EndReason, loss_text
from nmt.runs import SETTINGS
from nmt.schedules.base import Schedule, rises_at
from nmt.train.options import MIN_BLEU, last_update
from nmt.train.run import Run
from nmt.train.validation import ValidationResult


def certain_end(run: Run) -> int | None:
    """The last update according to --max-updates and --max-epochs, regardless of the speed; None if neither is set."""
    options = replace(run.options, max_minutes=None)
    so_far = run.loader.updates_per_epoch(), run.progress.update, run.epochs
    return last_update(options, *so_far, seconds=None, seconds_so_far=0.0)


def report_validation(run: Run, result: ValidationResult, state: str) -> None:
    """Log a validation. state: its outcome, such as "new best" """
    progress, scores = run.progress, result.metrics.items()
    text = loss_text(result.losses["loss"], result.losses.get("nll"), digits=3)
    text += "".join(f" : {name} {mean:.4f}" for name, mean in result.other_parts().items())
    text += "".join(f" : {name.upper()} {score.value:.2f} ({score.signature})" for name, score in scores)
    text = f"[valid] Ep. {progress.epoch} : Up. {progress.update} : {text} : {state}"
    numbers = {**result.losses, "ppl": result.perplexity, **{name: score.value for name, score in scores}}
    run.report.validation(progress.update, text, numbers, result.examples)


def _doubts(run: Run) -> Iterator[str]:
    """Warnings about settings that do not work well together."""
    yield from run.criterion.doubts(run.settings, is_new=run.is_new)
    optimizer, schedule = run.settings["optimizer"], run.settings["schedule"]
    if hasattr(run.optimizer, "averaged") and schedule != "constant":
        yield f"--optimizer {optimizer} needs no decay, but --schedule {schedule} decays the rate (use --schedule constant)"
    if (last := certain_end(run)) is not None and rises_at(run.schedule, last):
        yield (
            f"the warm-up is too long: the learning rate still rises at the last update, {last:,} (lower "
            "--warmup-updates)"
        )
    if run.validation is None and type(run.schedule).see is not Schedule.see:
        yield f"--schedule {schedule} depends on validations, but there are none (use nmt prepare --valid)"
    for name, column in run.data.train.columns.items():
        if column_kind(column.kind).are_weights and column.is_zero():
            yield f"all weights in column {name} are 0, so nothing would be learned (prepare the data again)"
    if run.validation is not None:
        metrics, lines = list(run.validation.metrics.values()), run.validation.dev.target_lines
        for check in registry.every("text-check"):
            yield from check.cls(run.options).doubts(metrics, [lines])
        steps = run.data.pipeline.target.prepare
        if metrics and steps.alters and (count := steps.alterations(lines)["lines"]):
            way = "(prepare the data without --lowercase and --normalization to keep them)"
            yield f"{count:,} of {len(lines):,} references have characters that the text steps remove from translations {way}"


def announce(run: Run) -> None:
    """Log which model is trained, on which devices and data, and after which update it starts."""
    report, progress = run.report, run.progress
    name, ranks = run.facts.model, run.world.size
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    devices = f"{ranks} x {run.device.type}" if ranks > 1 else f"{run.device}"
    report.line(
        f"{name}: {parameter_text(parameters, run.model.num_parameters())} on {devices} ({run.options.precision}); "
        f"{len(run.data.train):,} pairs, {run.loader.updates_per_epoch():,} updates per epoch"
    )
    for line in run.loader.plan.lines():
        report.line(line)
    if run.model.cost_is_measured:
        report.line(f"model {name} does not define its FLOPs, so they are measured at a few lengths and interpolated")
    if run.average is not None and run.average.note:
        report.line(run.average.note)
    for line in _doubts(run):
        report.line(line)
    if run.validation is None:
        report.line(
            "no validation set: the newest checkpoint will be used, because no score selects the best (see nmt prepare --valid)"
        )
    elif run.settings["best_by"] == AUTO and "bleu" in run.validation.metrics and progress.judged_by == "loss":
        report.line(
            f"the loss selects the best checkpoint until BLEU exceeds {MIN_BLEU:g}; from then on BLEU does (see --best-by)"
        )
    if progress.update:
        report.line(f"resuming after update {progress.update} (epoch {progress.position.epoch})")
    if run.end is not None and not progress.validation_due:
        report.line(nothing_to_do(run))


def nothing_to_do(run: Run) -> str:
    """The message when a run that has ended is started again."""
    assert run.end is not None
    how = f"to train longer, raise {flag_of(run.end[0])}"
    if run.end[0] in run.settings:  # the schedule depends on this option
        how = f"--schedule {run.settings['schedule']} ends there: to train longer, start again in another --output"
    return f"nothing to do: the run ended at update {run.progress.update} ({how})"


def parameter_text(parameters: int, trainable: int) -> str:
    """The number of a model's parameters, and how many of them are trained if some are frozen."""
    return f"{parameters:,} parameters" + (f" ({trainable:,} trained)" if trainable < parameters else "")


def conclude(run: Run) -> None:
    """Log why the run ended, which checkpoint is the best, and how to use it."""
    for speedup in run.speedups:
        speedup.after_updates(run)
    progress = run.progress
    if run.end is not None:
        best = "" if progress.best is None else f"; best {_score_text(run, progress.judged_by, progress.best)}"
        at = f" at update {progress.best_update}" if best and progress.best_update else ""
        again = "; run the same command to train for as long again" if run.end[0] == "max_minutes" else ""
        run.report.line(f"stopped: {run.end[1]}{best}{at}{again}")
    if found := best_checkpoint(run):
        folder, score = found
        named = f"best checkpoint: {folder} ({score})" if score else f"newest checkpoint: {folder}"
        run.report.line(f"{named}; nmt translate --model {run.folder} uses it")


def best_checkpoint(run: Run) -> tuple[Path, str] | None:
    """The checkpoint used for a run folder, and its score as text ("" if it has none). None before the first checkpoint."""
    if not run.world.leads or (folder := run.checkpoints.best()) is None:
        return None
    score, name = run.checkpoints.score(folder), run.checkpoints.judged_by(folder)
    return folder, "" if score is None or name is None else _score_text(run, name, score)


def _score_text(run: Run, name: str, score: float) -> str:
    """A score with its name and its usual sign. score: signed so that higher is better"""
    sign = run.validation.sign(name) if run.validation else 1.0
    return f"{name} {sign * score:.4f}"


@contextmanager
def recorded_end(run: Run) -> Iterator[None]:
    """Context that records in the run folder that the run is in progress and, at the end, why it ended."""
    run.report.write_status()
    try:
        yield
    except BaseException as error:
        run.report.end(*_reason_of_error(error, run.progress.update))
        raise
    option, why = run.end or ("", "")
    run.report.end("patience" if option == "patience" else "finished", why)


def what_is_saved(update: int) -> str:
    """The end of a sentence about a stopped run: after which update it stopped, and whether that update is saved."""
    return f"after update {update}, which is saved" if update else "before the first update; nothing is saved"


def _reason_of_error(error: BaseException, update: int) -> tuple[EndReason, str]:
    if isinstance(error, Interrupted):
        return "signal", f"stopped by {signal.Signals(error.signal_number).name} {what_is_saved(update)}"
    if isinstance(error, KeyboardInterrupt):
        return "signal", f"stopped immediately by a second SIGINT after update {update}"
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
    """Write all settings as TOML, so that `nmt train --config RUN/settings.toml` resumes the run."""
    if run.world.leads and not run.finished:
        of_this_call = {"json", *registry.option_names("preview")}
        settings = (as_dict(run.options) | parts.as_dict()).items()
        lines = (f"{toml_line(key, value)}\n" for key, value in settings if key not in of_this_call)
        write_file(run.folder / SETTINGS, "".join(lines).encode(errors="surrogateescape"))
