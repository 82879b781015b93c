"""`nmt train --dry-run`: the time, memory and cost of a run, measured by a few passes that leave no trace.

If updates take only seconds, whole updates are measured. Otherwise, part of a micro-batch is measured and extrapolated.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import torch

from nmt import register
from nmt.batch import Batch
from nmt.checkpoint import flat_optimizer, size_of
from nmt.data.batching import GROUPS_PER_UPDATE
from nmt.data.loader import UpdateBatches
from nmt.device import Memory
from nmt.extensions.watch.previews.options import DryRunOptions
from nmt.extensions.watch.reporters.estimate import OtherPrograms
from nmt.log import log
from nmt.previews.base import Preview
from nmt.quantities import duration, operations, size
from nmt.symbols import PAD
from nmt.train.build import build_run
from nmt.train.checkpointing import SavedState, check_same
from nmt.train.options import last_update
from nmt.train.probe import choose_kernels
from nmt.train.report import NoReport
from nmt.train.reporting import parameter_text
from nmt.train.run import Run
from nmt.train.setup import RunSetup
from nmt.train.trainer import make_update
from nmt.train.update_log import flops_of

TIMED_UPDATES: Final = 3  # number of timed updates, after a warm-up update
MAX_SECONDS: Final = 15.0  # time limit for all passes after the first two
FIRST_TOKENS: Final = 32  # tokens in the first pass, including padding
GROWTH: Final = 4  # maximum factor by which the number of tokens in a pass may grow
MIN_GROWTH: Final = 1.5  # minimum factor; a smaller one would show nothing new
PASSES_PER_SIZE: Final = 4  # passes for each size: a warm-up pass, a timed one, and two in one update


class LogOnlyReport(NoReport):
    """The report of a dry run: log lines, but no files."""

    def line(self, text: str) -> None:
        log.info(text)


@dataclass(frozen=True)
class Measurement:
    """Seconds per update, and peak memory of this rank's device in bytes.

    extrapolated_from: tokens of the timed pass, padding included; None if whole updates were timed
    """

    seconds: float
    memory: int
    extrapolated_from: int | None


@register("preview", "dry-run", DryRunOptions)
class DryRun(Preview):
    """The time, memory and cost of a run, measured with a few updates.

    Memory is that of this rank's device, in bytes. Seconds, tokens and FLOPs are per update, over all ranks.
    """

    def __init__(self, options: Any, parts: Any) -> None:
        """Make a few passes with initial weights. Raises the errors that training would raise."""
        setup = RunSetup(options)
        memory = Memory(setup.device)
        free = memory.free()
        with setup.joined():
            run = build_run(setup, parts, LogOnlyReport() if setup.world.leads else NoReport())
            before = _begin(run), run.epochs
            choose_kernels(run)
            others = OtherPrograms(run)
            first, *updates = islice(run.loader.updates(run.progress.position), 1 + TIMED_UPDATES)
            run.model.train()
            measured = _Meter(run, memory).measure(first, updates)
            for line in others.lines():
                run.report.line(line)
            self._estimate(run, before, updates, measured, free)

    def _estimate(
        self,
        run: Run,
        before: tuple[int, float],
        updates: Sequence[UpdateBatches],
        measured: Measurement,
        free: int,
    ) -> None:
        """Set the numbers to report.

        before: updates made and epochs read so far
        updates: the next updates
        measured: seconds and memory of one of these updates
        free: bytes of memory that were free before
        """
        options, updates_per_epoch, batches = run.options, run.loader.updates_per_epoch(), _batches(updates)
        sides = [side for batch in batches for side in (batch.source, batch.target_output)]
        tensors, _ = flat_optimizer(run.optimizer)
        last = last_update(options, updates_per_epoch, *before, measured.seconds, 0.0)
        to_do = None if last is None else max(last - before[0], 0)
        self.model = run.facts.model
        self.parameters = sum(parameter.numel() for parameter in run.model.parameters())
        self.trainable = run.model.num_parameters()
        self.device = f"{run.device.type} ({options.precision})"
        self.ranks = run.world.size
        self.pairs = len(run.data.train)
        self.updates_per_epoch = updates_per_epoch
        self.first = before[0] + 1  # number of the first update
        self.last = last  # number of the last update; None if only patience ends the run
        self.micro_batches = len(batches) / len(updates)  # number per update and rank
        self.max_tokens = run.progress.limit.max_micro_batch_tokens  # limit per micro-batch, padding included
        self.target_tokens = sum(data.tokens for data in updates) / len(updates)
        self.padding = 1 - sum(int((side != PAD).sum()) for side in sides) / sum(side.numel() for side in sides)
        self.seconds = measured.seconds
        self.flops = sum(flops_of(run, data) for data in updates) / len(updates)
        self.memory = measured.memory  # peak bytes during the updates
        # Tokens of the timed pass; None if whole updates were measured.
        self.extrapolated_from = measured.extrapolated_from
        self.free = free  # free bytes before the updates
        self.checkpoint = size_of(tensors) + size_of(run.evaluated_weights())  # bytes on disk
        if run.average is not None:
            self.checkpoint += size_of(run.average.weights)
        self.kept = options.keep_last + options.keep_best if options.keep_last else None  # number kept; None for all
        # For all updates; None if the run has no end.
        self.hours = None if to_do is None else self.seconds * to_do / 3600
        self.eflop = None if to_do is None else self.flops * to_do / 1e18

    def values(self) -> dict[str, Any]:
        """See Preview."""
        return vars(self)

    def lines(self) -> Iterator[str]:
        """See Preview."""
        yield f"{self.model}: {parameter_text(self.parameters, self.trainable)} on {self.ranks} x {self.device}"
        yield f"data: {self.pairs:,} pairs, {self.updates_per_epoch:,} updates per epoch"
        seconds = f"{self.seconds:.3g}" if self.seconds < 100 else f"{self.seconds:,.0f}"
        yield (
            f"one update: {self.target_tokens:,.0f} target tokens in {self.micro_batches:.1f} micro-batches per device (at "
            f"least one for each of {GROUPS_PER_UPDATE} groups of pairs of similar length), up to {self.max_tokens:,} "
            f"tokens each, {self.padding:.1%} padding; {seconds} s, {self.target_tokens / self.seconds:,.0f} "
            f"target tokens/s, {operations(self.flops / self.seconds)}/s"
        )
        yield f"memory: {size(self.memory)} at the peak; {size(self.free)} were free at the start"
        if self.extrapolated_from is None:
            yield f"measured: time and memory, over {TIMED_UPDATES} updates after a warm-up update"
        else:
            passes = f"passes over up to {self.extrapolated_from:,} tokens, because whole updates would take too long"
            yield f"extrapolated: time and memory, from {passes}; the rest is counted"
        kept = "all are kept" if self.kept is None else f"up to {self.kept} kept: {size(self.checkpoint * self.kept)}"
        yield f"a checkpoint: {size(self.checkpoint)} on disk; {kept}"
        if self.last is None:
            yield f"the run: starts at update {self.first:,} and has no end"
        elif self.last < self.first:
            yield f"the run: nothing to do, because it ended at update {self.first - 1:,}"
        else:
            yield (
                f"the run: updates {self.first:,} to {self.last:,} ({self.last / self.updates_per_epoch:.1f} epochs in all), "
                f"{duration(self.hours or 0)} and {operations(1e18 * (self.eflop or 0))}, plus validation and checkpoints"
            )
        yield "nothing was saved"


def _begin(run: Run) -> int:
    """Put a run at the position where it would resume, but without its weights, and return the number of updates made so far."""
    if not run.checkpoints.folder.is_dir() or (checkpoint := run.checkpoints.newest_valid()) is None:
        for start in run.starts:
            start.begin(run)
        return run.progress.update
    state = SavedState.read(checkpoint)
    check_same(run, checkpoint.folder, state)
    run.progress.position = state.progress.position
    return state.progress.update


def _batches(updates: Sequence[UpdateBatches]) -> list[Batch]:
    return [batch for data in updates for batch in data.batches]


class _Meter:
    """Measures updates of a run within MAX_SECONDS. All ranks make the same decisions, based on the leader's clock."""

    def __init__(self, run: Run, memory: Memory) -> None:
        self.run, self.memory, self.left = run, memory, MAX_SECONDS

    def measure(self, first: UpdateBatches, updates: Sequence[UpdateBatches]) -> Measurement:
        """Measure the cost of one of these updates, with whole updates or with passes over part of the largest micro-batch."""
        memory, batch = self.memory, max(_batches([first, *updates]), key=lambda batch: batch.cells)
        memory.watch()
        before = memory.peak()
        whole, per_update = self._most(batch.cells), sum(batch.cells for batch in _batches(updates)) / len(updates)
        tokens = min(FIRST_TOKENS, whole)
        self._seconds(_share(first, batch, tokens, 1))  # the very first pass also creates the optimizer's state
        peaks = [(0, before + self._kept_bytes())]
        while True:
            memory.watch()
            part = _share(first, batch, tokens, 1)
            seconds = self._seconds(part)
            self.left -= seconds
            peaks.append((part.batches[0].cells, memory.peak()))
            larger = min(whole, GROWTH * tokens, int(tokens * self.left / (PASSES_PER_SIZE * seconds)))
            if larger < min(whole, MIN_GROWTH * tokens) or tokens == whole:
                break
            tokens = larger
        if tokens == whole and (1 + TIMED_UPDATES) * seconds * self._most(int(per_update)) / whole <= self.left:
            return self._whole_updates(first, updates)
        return self._extrapolated(first, batch, tokens, per_update, peaks)

    def _whole_updates(self, first: UpdateBatches, updates: Sequence[UpdateBatches]) -> Measurement:
        self.memory.watch()
        self._seconds(first)
        seconds = [self._seconds(data) for data in updates]
        return Measurement(sum(seconds) / len(seconds), self.memory.peak(), None)

    def _extrapolated(
        self, data: UpdateBatches, batch: Batch, tokens: int, per_update: float, peaks: Sequence[tuple[int, int]]
    ) -> Measurement:
        """Extrapolate time and memory. Time grows with the tokens of an update, except for the optimizer's step.

        Memory grows with the tokens of a micro-batch.

        tokens: tokens per pass
        per_update: tokens per update, padding included
        peaks: tokens and bytes of the passes so far, ascending
        """
        one, two = (_share(data, batch, tokens, times) for times in (1, 2))
        seconds_of_one, seconds_of_two = self._seconds(one), self._seconds(two)
        cells = one.batches[0].cells
        # This assumes that the optimizer's step takes no longer than two passes.
        seconds_of_pass = max(seconds_of_two - seconds_of_one, seconds_of_two / 4)
        seconds_of_step = max(seconds_of_one - seconds_of_pass, 0.0)
        (fewer, less), (more, peak) = peaks[-2:]
        slope = max(peak - less, 0) / max(more - fewer, 1)
        seconds = seconds_of_step + seconds_of_pass * per_update / cells
        return Measurement(seconds, int(peak + slope * max(batch.cells - more, 0)), cells)

    def _kept_bytes(self) -> int:
        """Bytes that training needs besides the weights, whatever the number of tokens: gradients and the optimizer's state."""
        tensors, _ = flat_optimizer(self.run.optimizer)
        trained = [parameter for parameter in self.run.model.parameters() if parameter.requires_grad]
        return size_of(tensors) + sum(parameter.numel() * parameter.element_size() for parameter in trained)

    def _seconds(self, data: UpdateBatches) -> float:
        """Make an update, and return how many seconds it took."""
        began = time.monotonic()
        make_update(self.run, data)
        if self.run.device.type == "cuda":
            torch.cuda.synchronize(self.run.device)
        (seconds,) = self.run.world.maximum(time.monotonic() - began)
        cells = sum(batch.cells for batch in data.batches)
        self.run.report.line(f"{cells:,} tokens (padding included) in {seconds:.2f} s")
        return max(seconds, 1e-9)

    def _most(self, tokens: int) -> int:
        """The largest of the ranks' numbers."""
        return -self.run.world.minimum(-tokens)


def _share(data: UpdateBatches, batch: Batch, tokens: int, times: int) -> UpdateBatches:
    """Make an update of `times` passes over the same pairs. tokens: approximate number per pass, including padding"""
    part = batch.rows(slice(0, max(1, tokens * len(batch) // batch.cells)))
    return replace(data, batches=[part] * times, idle=0, tokens=times * int(part.num_target_tokens))
