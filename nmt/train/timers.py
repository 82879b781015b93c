"""Timers that decide what is due after each update of a run: a log line, a validation, a checkpoint."""

from nmt.data.loader import UpdateBatches
from nmt.train.options import TrainOptions
from nmt.train.periods import Timer
from nmt.train.run import Run


class Timers:
    """The timers of `--valid-every`, `--save-every` and `--log-every`."""

    def __init__(self, options: TrainOptions) -> None:
        self.by_name = {
            "validation": Timer(options.valid_every),
            "checkpoint": Timer(options.save_every),
            "log line": Timer(options.log_every),
        }
        self._passed: set[str] = set()  # timers whose period ended with the last update
        self._seconds = 0.0  # time of the last update

    def due(self, run: Run, data: UpdateBatches) -> set[str]:
        """What is due after the last update, which used this data: "log line", "validation", or both, as always at the run's end.

        Work that is due is also recorded in the run's progress, because a checkpoint forced by a signal has to keep it. A
        validation that is due only by the clock is not recorded, because nothing else may depend on it.
        """
        progress, validations = run.progress, self.by_name["validation"]
        now = progress.update, progress.epoch if data.ends_epoch else None
        self._seconds = run.seconds
        self._passed = {name for name, timer in self.by_name.items() if timer.is_due(*now, run.seconds)}
        progress.validation_counts = "validation" in self._passed and validations.is_regular(*now)
        progress.validation_due = run.validation is not None and (progress.validation_counts or run.finished)
        progress.save_due = "checkpoint" in self._passed or run.finished
        due = self._passed - {"checkpoint"}
        return due | ({"log line"} if run.ends else set()) | ({"validation"} if progress.validation_due else set())

    def restart(self, seconds: float) -> None:
        """Start a new period of minutes for all work that was due and is now done. seconds: time on the run's clock"""
        for name in self._passed:
            took = seconds - self._seconds if name == "validation" else 0.0
            self.by_name[name].restart(seconds, took)
