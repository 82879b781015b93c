"""What happens when the loss diverges: the run ends, or it returns to an earlier checkpoint and continues with later data."""

from typing import Final, NoReturn

from nmt.artefact import Artefact
from nmt.errors import DivergedError
from nmt.runs import newest_whole, update_of
from nmt.train.checkpointing import SavedState, choice_of_leader, put_state, set_newer_aside
from nmt.train.progress import LossWatch, Rollback
from nmt.train.run import REDUCED_UPDATES, Run
from nmt.train.saving import finish_save

MAX_SKIPPED_UPDATES: Final = 10  # number of skipped updates in a row that counts as divergence
MAX_BAD_UPDATES: Final = 20  # number of bad updates in a row that counts as divergence (see LossWatch)
MAX_ROLLBACKS: Final = 3
RESTART: Final = "start a new run in another --output with a lower --lr, more --warmup-updates or --clip-norm 1"


def divergence(run: Run) -> str | None:
    """The reason why the loss counts as diverged, or None if it does not."""
    progress = run.progress
    if progress.skipped_in_a_row == MAX_SKIPPED_UPDATES:
        return f"loss or gradient was not finite {MAX_SKIPPED_UPDATES} times in a row"
    if run.options.on_divergence == "rollback" and progress.watch.bad >= MAX_BAD_UPDATES:
        return f"the loss was far above its mean of {progress.watch.mean:.4f} for {progress.watch.bad} updates in a row"
    return None


def roll_back(run: Run, why: str) -> None:
    """Return to the last checkpoint before the divergence, but continue with the data that follows the divergence.

    why: the reason from `divergence`
    Raises DivergedError if the run should stop, if there is no such checkpoint, or after too many rollbacks.
    """
    diverged = run.progress
    if run.options.on_divergence == "stop":
        _stop(run, why, f"to continue this run, add --on-divergence rollback; to change settings, {RESTART}")
    if len(diverged.rollbacks) >= MAX_ROLLBACKS:
        _stop(run, f"{why}, after {MAX_ROLLBACKS} rollbacks", RESTART)
    finish_save(run)
    checkpoint = choice_of_leader(run, _last_good(run) if run.world.leads else None)
    if checkpoint is None:
        _stop(
            run,
            f"{why}, and there is no earlier checkpoint",
            f"{RESTART}, or with a shorter --save-every and a larger --keep-last",
        )
    if run.world.leads:
        set_newer_aside(run, checkpoint.folder, "diverged")
    state = SavedState.read(checkpoint)
    run.report.offset()
    put_state(run, checkpoint, state)
    run.report.truncate(state.metrics_offset)
    progress, at, to = run.progress, diverged.update, run.progress.update
    if progress.position.stage != diverged.position.stage:
        progress.watch = LossWatch()
    progress.position, progress.epoch, progress.limit = diverged.position, diverged.epoch, diverged.limit
    progress.rollbacks = [*diverged.rollbacks, Rollback(at, to)]
    run.report.line(
        f"diverged at update {at}: {why}; back at update {to}, continuing with later data and half the learning rate until "
        f"update {to + REDUCED_UPDATES} (rollback {len(progress.rollbacks)} of {MAX_ROLLBACKS})"
    )


def _stop(run: Run, why: str, advice: str) -> NoReturn:
    run.report.line(f"stopped: diverged at update {run.progress.update}")
    raise DivergedError(f"update {run.progress.update}: {why}; the checkpoints are kept ({advice})")


def _last_good(run: Run) -> Artefact | None:
    """The newest undamaged checkpoint from before the first bad update.

    Checkpoints that were saved only because of a signal are not considered, so that the result does not depend on signals.
    """
    since = run.progress.watch.since
    return newest_whole([folder for folder in run.checkpoints.due() if update_of(folder) < since])
