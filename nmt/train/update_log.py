"""The log of a run's updates: a record of each update, and the run's status with each log line."""

import time
from copy import deepcopy
from typing import Final

import torch

from nmt.data.loader import UpdateBatches
from nmt.device import Memory
from nmt.models.base import Model
from nmt.report.losses import LogWindow, Stats
from nmt.report.run_status import RunStatus
from nmt.train.options import last_update
from nmt.train.periods import Timer
from nmt.train.reporting import best_checkpoint
from nmt.train.run import Run
from nmt.train.saving import save_has_ended

EARLY_UPDATES: Final = (1, 2, 5, 10)  # always logged, so that even a slow machine soon shows that training works
MIN_SHOWN_UPDATES: Final = 5  # with fewer updates, loss and speed vary too much: the previous values stay


class UpdateLog:
    """Records updates, and logs them in windows.

    timers: the timers of the next validation and the next checkpoint, by name
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
        """The number of updates since this log was created."""
        return self.run.progress.update - self.first

    def add(self, stats: Stats, data: UpdateBatches) -> None:
        """Record an update."""
        run, progress = self.run, self.run.progress
        if (max_tokens := progress.limit.max_micro_batch_tokens) < self.max_tokens:
            run.report.line(
                f"update {progress.update}: out of memory with micro-batches of up to {self.max_tokens:,} tokens; from now on "
                f"they have at most {max_tokens:,} (the gradient is the same, except for dropout)"
            )
            self.max_tokens = max_tokens
        flops = flops_of(run, data)
        progress.flops += flops
        progress.skipped += not stats.applied
        if stats.applied:
            progress.skipped_in_a_row = 0
        elif progress.scale is None or progress.scale.factor == 1:  # otherwise the loss scale was too large
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
        if self.made == 1:  # the first update is slower than others, so no estimate is based on it
            self.timed_from = now
        self.window.add(stats, flops, now - self.began)
        if run.report.is_due():
            if self.window.updates >= MIN_SHOWN_UPDATES:
                self.shown = self.window
            run.report.show(self._status(stats))

    def see_checkpoint(self) -> None:
        """Look for a new checkpoint. The first one is logged, with the command that uses it."""
        # A save that is due has waited for the previous save, whose checkpoint may therefore be new.
        if not (save_has_ended(self.run) or self.run.progress.save_due):
            return
        first, self.best = self.best is None, best_checkpoint(self.run)
        if first and self.best is not None and not self.run.finished:
            name, folder = self.best[0].name, self.run.folder
            self.run.report.line(f"saved {name}; to try the model while it trains: nmt translate --model {folder}")

    def write(self, stats: Stats) -> None:
        """Log the updates since the last call. stats: statistics of the last update"""
        self.shown = self.window
        self.run.report.training(self._status(stats))
        self.window = LogWindow()

    def restart_clock(self) -> None:
        """Restart the clock for the next update, so that it does not include validation and saving."""
        self.began = time.monotonic()

    def _status(self, stats: Stats) -> RunStatus:
        """The status of the run. stats: statistics of the last update"""
        run, progress = self.run, self.run.progress
        total, seconds_left = self._end()
        per_update = self.window.seconds / self.window.updates  # seconds per update, over the last updates
        speeds = per_update, per_update * self.updates_per_epoch
        so_far = progress.update, run.epochs, run.seconds
        return RunStatus(
            update=progress.update,
            total=total,
            epoch=progress.epoch,
            epochs=run.epochs,
            window=deepcopy(self.shown),
            gradient_norm=stats.gradient_norm,
            learning_rate=run.learning_rate(progress.update),
            flops=progress.flops,
            memory=self.memory.peak(),
            seconds_left=seconds_left,
            events={name: timer.seconds_left(*so_far, *speeds) for name, timer in self.timers.items()},
            best=None if self.best is None else self.best[0].name + (f" ({self.best[1]})" if self.best[1] else ""),
        )

    def _end(self) -> tuple[int | None, float | None]:
        """Estimate (updates of the whole run, seconds until its end) at the speed of this process; None if unknown."""
        run, update = self.run, self.run.progress.update
        seconds = None  # per update
        if self.made > 1:
            seconds = (time.monotonic() - self.timed_from) / (self.made - 1)  # including validation and saving
        last = last_update(run.options, self.updates_per_epoch, update, run.epochs, seconds, run.seconds)
        if last is None:
            return None, None
        last = max(last, update)
        if last == update:
            return last, 0.0
        return last, None if seconds is None else (last - update) * seconds


def flops_of(run: Run, data: UpdateBatches, model: Model | None = None) -> int:
    """The FLOPs of an update on this data, over all ranks. model: replaces the run's model"""
    lengths = torch.from_numpy(data.source_lengths), torch.from_numpy(data.target_lengths)
    return run.criterion.training_flops(model or run.model, *lengths)
