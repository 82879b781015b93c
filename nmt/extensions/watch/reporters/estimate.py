"""The estimate of a run from its first minute, as a reporter."""

import math
from pathlib import Path
from typing import Any, Final

from nmt import register
from nmt.data.loader import UpdateBatches
from nmt.extensions.watch.estimate import OtherPrograms, estimate_lines
from nmt.extensions.watch.reporters.options import EstimateOptions
from nmt.reporters.base import Reporter
from nmt.schedules.base import rises_at
from nmt.train.options import last_update
from nmt.train.reporting import certain_end
from nmt.train.run import Run

FIRST_SECONDS: Final = 60.0  # of a process, before its speed tells anything about the rest of the run
FIRST_SHARE: Final = 0.1  # of --max-minutes, where that is shorter: a warning must come in time
WITHIN_WARMUP: Final = (
    "at this speed --max-minutes ends the run while the learning rate still rises (raise it, or start another run with fewer "
    "--warmup-updates)"
)


@register("reporter", "estimate", EstimateOptions)
class Estimate(Reporter):
    """Logs once, after the first minute (or a tenth of a short --max-minutes), how long a run would take.

    Warns then if the run would end within its warm-up, and withdraws that if the run becomes faster.
    """

    def __init__(self, options: Any, folder: Path) -> None:
        self._first_seconds = min(FIRST_SECONDS, FIRST_SHARE * 60 * (options.max_minutes or math.inf))
        self._logged = self._warned = False
        self._updates, self._timed_from = 0, 0.0  # by the run's clock, from the end of the first update on

    @classmethod
    def is_wanted(cls) -> bool:
        """See Reporter."""
        return True

    def update(self, run: Run, data: UpdateBatches) -> None:
        """See Reporter."""
        self._updates += 1
        if self._updates == 1:  # it takes longer than others: memory is allocated, kernels are compiled
            self._timed_from, self._others = run.seconds, OtherPrograms(run)
        if self._updates == 1 or run.seconds < self._first_seconds or run.finished:
            return
        seconds = max(run.seconds - self._timed_from, 1e-9) / (self._updates - 1)
        if not self._logged:
            self._logged, self._warned = True, _ends_within_warmup(run, seconds)
            warning = [WITHIN_WARMUP] if self._warned else []
            for line in [*estimate_lines(run, data, seconds), *warning, *self._others.lines()]:
                run.report.line(line)
        elif self._warned and not _ends_within_warmup(run, seconds):
            self._warned = False
            now = f"at {seconds:.3g} s per update the run now reaches the end of its warm-up"
            run.report.line(f"the warning that --max-minutes ends the run too early no longer holds: {now}")


def _ends_within_warmup(run: Run, seconds: float) -> bool:
    """Whether --max-minutes ends the run while the learning rate still grows, at a speed. seconds: of an update"""
    so_far = run.loader.updates_per_epoch(), run.progress.update, run.epochs
    last, by_clock = last_update(run.options, *so_far, seconds, run.seconds), run.options.max_minutes is not None
    return by_clock and last is not None and last != certain_end(run) and rises_at(run.schedule, last)
