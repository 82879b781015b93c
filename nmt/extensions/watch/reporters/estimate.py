"""An estimate of a run after its first minute: how long it will take, how much memory it uses, and which presets are faster."""

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch

from nmt import register, registry
from nmt.data.loader import UpdateBatches
from nmt.device import Memory
from nmt.errors import UserError
from nmt.extensions.watch.reporters.options import EstimateOptions
from nmt.models.base import Model
from nmt.quantities import duration, size
from nmt.reporters.base import Reporter
from nmt.schedules.base import rises_at
from nmt.train.options import last_update
from nmt.train.reporting import certain_end
from nmt.train.run import Run
from nmt.train.update_log import flops_of

FIRST_SECONDS: Final = 60.0  # seconds that a process must run before its speed predicts the rest of the run
FIRST_SHARE: Final = 0.1  # share of a short --max-minutes to wait, so that the warning comes in time
WITHIN_WARMUP: Final = (
    "at this speed --max-minutes ends the run while the learning rate is still rising (raise --max-minutes, or start a new run "
    "with fewer --warmup-updates)"
)
LONG_HOURS: Final = 168.0  # a week
MAX_SHARED_CORES: Final = 0.6  # number of this run's cores that other programs may use before a message is logged
MAX_NAMED_PRESETS: Final = 3
VARIATIONS: Final = "table3-"  # prefix of presets that reproduce a published ablation; they are not meant to be cheap


class OtherPrograms:
    """Measures how much other programs have used a run's CPU cores since this object was created."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._began, self._used = time.monotonic(), processor_seconds()

    def lines(self) -> Iterator[str]:
        """Yield a message if other programs use so many cores that fewer threads would be faster."""
        threads, cores, used = torch.get_num_threads(), os.cpu_count() or 1, processor_seconds()
        if self._used is None or used is None or self.run.device.type != "cpu" or self.run.world.size > 1:
            return
        ours = used[1] - self._used[1]
        others = (used[0] - self._used[0] - ours) / (time.monotonic() - self._began)
        if threads > 1 and others + threads > cores + MAX_SHARED_CORES:
            yield (
                f"other programs use {others:.1f} of this machine's {cores} cores, so the {threads} threads of this run wait "
                f"for each other. --threads {max(1, int(cores - others))} can be ten times as fast (a run "
                "that has started can be stopped and resumed with it)"
            )


def processor_seconds() -> tuple[float, float] | None:
    """CPU seconds used so far by all programs on this machine, and by this process; None if there is no /proc (Linux)."""
    try:
        user, nice, system, _, _, *others = map(int, Path("/proc/stat").read_text().partition("\n")[0].split()[1:9])
    except (OSError, ValueError, IndexError):
        return None
    return sum((user, nice, system, *others)) / os.sysconf("SC_CLK_TCK"), time.process_time()


@register("reporter", "estimate", EstimateOptions)
class Estimate(Reporter):
    """Logs once, after the first minute (or a tenth of a short --max-minutes), how long the run will take.

    It also warns if the run will end within its warm-up, and withdraws the warning if the run becomes faster.
    """

    def __init__(self, options: Any, folder: Path) -> None:
        self._first_seconds = min(FIRST_SECONDS, FIRST_SHARE * 60 * (options.max_minutes or math.inf))
        self._logged = self._warned = False
        self._updates, self._timed_from = 0, 0.0  # number of updates; the run's clock after the first one

    def update(self, run: Run, data: UpdateBatches) -> None:
        """See Reporter."""
        self._updates += 1
        if self._updates == 1:  # the first update takes longer: memory is allocated and kernels are compiled
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
            now = f"at {seconds:.3g} s per update, the run now reaches the end of its warm-up"
            run.report.line(f"the warning about --max-minutes no longer applies: {now}")


def _ends_within_warmup(run: Run, seconds: float) -> bool:
    """Whether --max-minutes ends the run while the learning rate is still rising. seconds: seconds per update"""
    so_far = run.loader.updates_per_epoch(), run.progress.update, run.epochs
    last, by_clock = last_update(run.options, *so_far, seconds, run.seconds), run.options.max_minutes is not None
    return by_clock and last is not None and last != certain_end(run) and rises_at(run.schedule, last)


def estimate_lines(run: Run, data: UpdateBatches, seconds: float) -> Iterator[str]:
    """Lines with the time and memory of the run, and with faster presets if the run would take over a week.

    data: the last update; all others are assumed to have its size
    seconds: seconds per update
    """
    done = run.progress.update
    last = last_update(run.options, run.loader.updates_per_epoch(), done, run.epochs, seconds, run.seconds)
    memory = f"memory {size(Memory(run.device).peak())} at the peak so far"
    if last is None:
        yield f"estimate: {seconds:.3g} s per update; the run has no end; {memory}"
        return
    hours = seconds * max(last - done, 0) / 3600
    update = f"{seconds:.3g} s per update of {data.tokens:,} target tokens"
    yield f"estimate: about {duration(hours)} to update {last:,}, at {update}; {memory}"
    if hours > LONG_HOURS:
        flops_per_second = flops_of(run, data) / max(seconds, 1e-9)
        shorter = sorted(_shorter(run, data, flops_per_second).items(), key=lambda item: -item[1])[:MAX_NAMED_PRESETS]
        named = ", ".join(f"--preset {name} (about {duration(hours)})" for name, hours in shorter)
        what = f"these presets would: {named}" if named else "no preset would either (use fewer --max-updates)"
        yield f"this run will not end within a week on this machine; {what}. The run continues; Ctrl-C saves and stops it"


def _shorter(run: Run, data: UpdateBatches, flops_per_second: float) -> dict[str, float]:
    """The presets for the run's model that would end within a week on its data and devices: hours by name."""
    hours = {}
    for name, preset in registry.presets().items():
        values = preset.values
        if values.get("model") != run.facts.model or name.startswith(VARIATIONS) or not values.get("max_updates"):
            continue
        updates = values["max_updates"] * values.get("batch_tokens", run.options.batch_tokens) / data.tokens
        try:
            with torch.random.fork_rng([]), torch.device("meta"):
                part = registry.choose("model", run.facts.model, values)
                model: Model = registry.build(part, run.facts.vocabularies)
            if not model.cost_is_measured:
                hours[name] = flops_of(run, data, model) * updates / flops_per_second / 3600
        except UserError:  # the preset does not fit the data's vocabularies or the criterion
            continue
    return {name: needed for name, needed in hours.items() if needed <= LONG_HOURS}
