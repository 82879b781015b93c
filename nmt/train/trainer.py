"""The training loop."""

from contextlib import closing, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

from nmt import signals
from nmt.data.loader import UpdateBatches, prefetched
from nmt.errors import Interrupted, ResourceError, quoted
from nmt.locks import Lock
from nmt.log import log
from nmt.report.losses import Stats
from nmt.report.run_status import METRICS_FILE, STATUS_FILE, TRAIN_LOG, read_status
from nmt.runs import SETTINGS
from nmt.train.build import build_run
from nmt.train.checkpointing import resume
from nmt.train.divergence import divergence, roll_back
from nmt.train.options import TrainOptions
from nmt.train.probe import choose_kernels
from nmt.train.reporting import announce, conclude, nothing_to_do, recorded_end, save_settings, what_is_saved
from nmt.train.run import Run
from nmt.train.saving import save, saves_finished
from nmt.train.setup import RunSetup
from nmt.train.timers import Timers
from nmt.train.update import MAX_PASS_SECONDS, PairTooLongError, UpdateGivenUp
from nmt.train.update_log import EARLY_UPDATES, UpdateLog
from nmt.train.validating import validate_run


def train(options: TrainOptions, parts: Any) -> Run:
    """Train a model, or resume a run. parts: the chosen components (nmt.cli.command.Parts)

    Raises Interrupted, after saving, if a signal requested a stop.
    """
    setup = RunSetup(options)
    with (
        setup.joined(),
        Lock(Path(options.output)) if setup.world.leads else nullcontext(),
        signals.Signals(MAX_PASS_SECONDS if setup.world.leads else None),
    ):
        run = build_run(setup, parts)
        with closing(run.report):
            _begin(run)
            if _has_recorded_end(run):
                log.info(nothing_to_do(run))
                return run
            with recorded_end(run), saves_finished(run):
                choose_kernels(run)
                announce(run)
                save_settings(run, parts)
                if run.progress.validation_due:  # a signal interrupted the validation in an earlier process
                    run.progress.save_due |= run.finished
                    validate_run(run)
                    save(run, last=True)
                try:
                    if not run.ends:
                        _make_updates(run)
                except UpdateGivenUp:
                    _stop(run, given_up=True)
                if run.signal is not None:
                    _stop(run, given_up=False)
                conclude(run)
        return run


def _begin(run: Run) -> None:
    """Resume a run from its newest checkpoint, or let its starts initialise it."""
    if resume(run):
        return
    try:
        for start in run.starts:
            start.begin(run)
    except BaseException:
        _remove_empty(run)
        raise


def _has_recorded_end(run: Run) -> bool:
    """Whether a run is finished and its files say so, in which case the same command would have nothing to do."""
    status = read_status(run.folder / STATUS_FILE) if run.world.leads else None
    is_recorded = not run.world.leads or (status is not None and status.end is not None and status.end.is_last)
    return run.finished and not run.progress.validation_due and bool(run.world.minimum(int(is_recorded)))


def _remove_empty(run: Run) -> None:
    """Remove the empty folder and files of a run that could not start."""
    if run.world.leads:
        with suppress(OSError):
            run.checkpoints.folder.rmdir()
        for path in (run.folder / METRICS_FILE, run.folder / TRAIN_LOG):
            if path.is_file() and not path.stat().st_size:
                path.unlink()


def _make_updates(run: Run) -> None:
    """Update, validate and save until the run is finished, or until all ranks know of a signal to stop."""
    timers = Timers(run.options)
    update_log = UpdateLog(run, timers.by_name)
    run.model.train()
    with closing(prefetched(run.loader.updates(run.progress.position))) as updates:
        for data in updates:  # endless; each item holds this rank's micro-batches for one update
            stats = make_update(run, data)
            run.agree()
            run.seconds_at_update = run.seconds
            update_log.add(stats, data)
            if why := divergence(run):
                roll_back(run, why)
                update_log = UpdateLog(run, timers.by_name)
                if run.signal is None:
                    continue
                save(run, last=True)
                break
            run.report.update(run, data)
            due = timers.due(run, data)
            if "log line" in due or update_log.made in EARLY_UPDATES:
                update_log.write(stats)
            if "validation" in due:
                validate_run(run)
            if run.progress.save_due or run.ends:
                save(run, last=run.ends)
            update_log.see_checkpoint()
            if run.ends:
                break
            timers.restart(run.seconds)
            update_log.restart_clock()


def _stop(run: Run, given_up: bool) -> NoReturn:
    """Log where the run stopped, and raise Interrupted on all ranks together, after saving.

    given_up: whether an update was abandoned, in which case the previous update is not saved yet
    """
    update, again = run.progress.update, ""
    if given_up:
        run.agree()
        again = f"; update {update + 1} was abandoned and will be repeated"
    if given_up and update:
        save(run, last=True)
    signal = run.signal
    assert signal is not None
    how = f"to resume, use the same command, or --config {run.folder / SETTINGS}"
    run.report.line(f"stopped by signal {signal} {what_is_saved(update)}{again}; {how}")
    run.agree()
    raise Interrupted(signal)


def make_update(run: Run, data: UpdateBatches) -> Stats:
    """Make the next update on this rank's share of the data. After a signal, raises UpdateGivenUp and changes nothing."""
    progress, number = run.progress, run.progress.update + 1
    learning_rate = run.learning_rate(number)
    for group in run.optimizer.param_groups:
        group["lr"] = learning_rate * group["lr_factor"]
    run.context.update = number
    run.model.begin_update(number)
    digest = sha256(f"{run.options.seed} {number} {run.world.rank}".encode()).digest()
    # Seeds dropout and other random draws, because no random state carries over from one update to the next.
    seed = int.from_bytes(digest[:8], "little", signed=True)
    try:
        stats = run.updater(data, seed, progress.limit.max_micro_batch_tokens, progress.scale)
    except PairTooLongError as error:
        tokens = error.batch.source[0].tolist()
        text = quoted(run.data.pipeline.source.decode(tokens))
        advice = "use nmt prepare --max-length, or start a new run with a smaller model"
        raise ResourceError(f"{error}, with {len(tokens):,} source tokens: '{text}' ({advice})") from None
    if run.average is not None and stats.applied:
        run.average.update(number - progress.skipped)
    progress.limit.max_micro_batch_tokens = stats.max_micro_batch_tokens
    progress.advance(data)
    return stats
