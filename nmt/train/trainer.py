"""The training loop."""

import time
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

from nmt.data.loader import UpdateBatches, ahead
from nmt.errors import Interrupted, ResourceError, quoted
from nmt.locks import Lock
from nmt.log import log
from nmt.report.status import METRICS_FILE, TRAIN_LOG
from nmt.signals import Signals
from nmt.train.build import build_run
from nmt.train.checkpointing import resume
from nmt.train.divergence import divergence, roll_back
from nmt.train.estimate import RunEstimate
from nmt.train.options import AUTO, MIN_BLEU, Timer, TrainOptions
from nmt.train.probe import choose_kernels
from nmt.train.reporting import (
    EARLY_UPDATES,
    SETTINGS,
    UpdateLog,
    announce,
    conclude,
    recorded_end,
    report_look,
    report_validation,
    save_settings,
    what_is_saved,
)
from nmt.train.run import Run
from nmt.train.saving import save, save_has_ended, saves_finished
from nmt.train.setup import RunSetup
from nmt.train.update import MAX_PASS_SECONDS, PairTooLongError, SignalWatch, Stats, UpdateGivenUp
from nmt.train.validation import FailedOnAllRanks, ValidationResult, validate


def train(options: TrainOptions, parts: Any) -> Run:
    """Train a model, or continue a run. parts: the chosen ones (nmt.cli.command.Parts).

    Raises Interrupted after saving, when a signal asked to stop.
    """
    setup = RunSetup(options)
    with (
        setup.joined(),
        Lock(Path(options.output)) if setup.world.leads else nullcontext(),
        Signals(MAX_PASS_SECONDS if setup.world.leads else None) as signals,
    ):
        run = build_run(setup, parts)
        with closing(run.report):
            run.updater = replace(run.updater, watch=SignalWatch(run.world, signals))
            if not resume(run):
                try:
                    for start in run.starts:
                        start.begin(run)
                except BaseException:
                    _remove_empty(run)
                    raise
            with recorded_end(run), saves_finished(run):
                choose_kernels(run)
                announce(run)
                save_settings(run, parts)
                if run.progress.validation_due:  # a signal cut it short in an earlier process
                    run.progress.save_due |= run.finished
                    _validate_or_save(run, validate_run, signals)
                    save(run, last=True)
                    if signal := run.agree(signals.received):
                        raise Interrupted(signal)
                if not run.finished:
                    _make_updates(run, signals)
                conclude(run)
        return run


def _remove_empty(run: Run) -> None:
    """Remove what a run that could not begin has made: an empty folder and empty files."""
    if run.world.leads:
        with suppress(OSError):
            run.checkpoints.folder.rmdir()
        for path in (run.folder / METRICS_FILE, run.folder / TRAIN_LOG):
            if path.is_file() and not path.stat().st_size:
                path.unlink()


def _make_updates(run: Run, signals: Signals) -> None:
    """Update, validate and save until the run is finished or a signal asks to stop."""
    options, progress = run.options, run.progress
    log_timer, valid_timer, save_timer = map(Timer, (options.log_every, options.valid_every, options.save_every))
    estimate = RunEstimate(run)
    timers = {"validation": valid_timer, "checkpoint": save_timer, "log line": log_timer}
    update_log = UpdateLog(run, timers)
    run.model.train()
    with closing(ahead(run.loader.updates(progress.position))) as updates:
        for data in updates:  # endless; this rank's micro-batches of one update
            try:
                stats = make_update(run, data)
            except UpdateGivenUp:
                _leave(run, signals)
            signal, finished = run.agree(signals.received), run.finished
            update_log.add(stats, data)
            if why := divergence(run):
                roll_back(run, why)
                progress, update_log = run.progress, UpdateLog(run, timers)
                if signal:
                    save(run, last=True)
                    _stop(run, signal, "")
                continue
            estimate.see(data)
            now = (progress.update, progress.epoch if data.ends_epoch else None, run.seconds)
            due = [timer for timer in timers.values() if timer.is_due(*now)]
            if log_timer in due or update_log.made in EARLY_UPDATES or finished or signal:
                update_log.write(stats)
            progress.validation_counts = valid_timer in due and valid_timer.is_regular(*now[:2])
            progress.validation_due = run.validation is not None and (progress.validation_counts or finished)
            progress.save_due = save_timer in due or finished
            if progress.validation_due:
                _validate_or_save(run, validate_run, signals)
                finished, signal = run.finished, run.agree(signals.received)
            elif valid_timer in due:
                _validate_or_save(run, look, signals)
                signal = run.agree(signals.received)
            if progress.save_due or signal:
                save(run, last=finished or signal is not None)
            if save_has_ended(run) or progress.save_due:  # then an earlier one has ended
                update_log.see_checkpoint()
            if signal:  # and not a signal that came since, which other ranks do not know
                _stop(run, signal, "")
            if finished:
                break
            for timer in due:
                timer.restart(run.seconds, run.seconds - now[2] if timer is valid_timer else 0.0)
            update_log.began = time.monotonic()  # seconds of validation and saving belong to no update


def _validate_or_save(run: Run, validation: Callable[[Run, Signals], None], signals: Signals) -> None:
    """Validate; at an error the updates before it are saved, if it is on all ranks. validation: `validate_run` or `look`"""
    try:
        validation(run, signals)
    except Exception as error:
        first = error.error if isinstance(error, FailedOnAllRanks) else error
        if first is not error or run.world.size == 1:
            try:
                save(run, last=True)
                run.world.any(False)  # no rank ends, and the launcher all of them, while the leader writes
            except Exception as second:
                log.warn(f"checkpoint not saved: {second}")
        raise first from None


def _leave(run: Run, signals: Signals) -> NoReturn:
    """Save the last complete update, after one that was given up."""
    signal = run.agree(signals.received)
    assert signal is not None
    if run.progress.update:
        save(run, last=True)
    _stop(run, signal, f"; update {run.progress.update + 1} was given up, and is made again from its beginning")


def _stop(run: Run, signal: int, given_up: str) -> NoReturn:
    """Say where the run stopped, and raise Interrupted on all ranks together, after the save."""
    state = what_is_saved(run.progress.update)
    how = f"the same command, or --config {run.folder / SETTINGS}, goes on"
    run.report.line(f"stopped by signal {signal} {state}{given_up}; {how}")
    run.agree(signal)
    raise Interrupted(signal)


def make_update(run: Run, data: UpdateBatches) -> Stats:
    """Make the next update on this rank's share of its data. Raises UpdateGivenUp after a signal; nothing has changed then."""
    progress, number = run.progress, run.progress.update + 1
    learning_rate = run.learning_rate(number)
    for group in run.optimizer.param_groups:
        group["lr"] = learning_rate * group["lr_factor"]
    run.context.update = number
    run.model.begin_update(number)
    digest = sha256(f"{run.options.seed} {number} {run.world.rank}".encode()).digest()
    seed = int.from_bytes(digest[:8], "little", signed=True)  # of dropout, say: no random state outlives an update
    try:
        stats = run.updater(data, seed, progress.limit.max_micro_batch_tokens, progress.scale)
    except PairTooLongError as error:
        tokens = error.batch.source[0].tolist()
        text = quoted(run.data.pipeline.source.decode(tokens))
        mend = "begin anew with nmt prepare --max-length, or a smaller model"
        raise ResourceError(f"{error}, of {len(tokens):,} source tokens: '{text}' ({mend})") from None
    if run.average is not None and stats.applied:
        run.average.update(number - progress.skipped)
    progress.limit.max_micro_batch_tokens = stats.max_micro_batch_tokens
    progress.advance(data)
    return stats


def look(run: Run, signals: Signals) -> None:
    """Validate a run between its regular validations, because minutes have passed, and report that.

    Nothing else comes of it: weights, metrics.jsonl, best checkpoint, patience and schedule do not depend on the clock.
    """
    if (result := _result_of_validation(run, signals)) is not None:
        report_look(run, result)


def _result_of_validation(run: Run, signals: Signals) -> ValidationResult | None:
    """Validate the run's model; None without a development set, or if a signal cut the validation short."""
    options, progress, validation = run.options, run.progress, run.validation
    if validation is None:
        return None
    if not log.live:  # there a bar shows it
        last = "the run's last validation, " if run.finished else "validating "
        run.report.line(f"{last}on {len(validation.dev.corpus):,} pairs of {validation.dev.name}")
    run.context.scorer = model = run.evaluated_model()
    limits = progress.limit.max_micro_batch_tokens, options.precision
    try:
        return validate(model, run.criterion, validation, *limits, run.world, signals.check)
    except Interrupted:
        return None
    finally:
        run.context.scorer = run.model


def validate_run(run: Run, signals: Signals) -> None:
    """Validate and report it; the best model so far, and the last one, are then due to be saved.

    A signal cuts the validation short; it stays due, and is made when the run continues.
    """
    progress, validation, result = run.progress, run.validation, _result_of_validation(run, signals)
    if validation is None or result is None:
        return
    progress.validation_due = False
    if progress.validation_counts:
        run.schedule.see(result.losses["loss"])
    score = result.metrics.get("bleu")
    if (
        run.settings["best_by"] == AUTO
        and progress.judged_by != "bleu"
        and score is not None
        and score.value > MIN_BLEU
    ):
        progress.judged_by, progress.best = "bleu", None
        run.report.line(
            f"BLEU is above {MIN_BLEU:g}: from now on it decides which checkpoint is the best, not the loss"
        )
    sign = validation.sign(progress.judged_by)
    better = progress.see(sign * result.value(progress.judged_by))
    report_validation(run, result, better, sign)
    progress.save_due |= better or run.finished
