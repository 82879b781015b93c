"""`nmt train --dry-run`: a few updates of a run, of which nothing is kept, and an estimate of the run's time and cost."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import torch

from nmt.checkpoint import flat_optimizer, size_of
from nmt.data.batching import GROUPS_PER_UPDATE
from nmt.data.loader import ahead
from nmt.device import Memory
from nmt.quantities import duration, operations, size
from nmt.report.status import LogWindow
from nmt.train.checkpointing import SavedState, check_same
from nmt.train.initial import begin
from nmt.train.options import TrainOptions, last_update
from nmt.train.probe import choose_kernels
from nmt.train.reporting import add_update, flops_of, parameter_text
from nmt.train.run import Run
from nmt.train.setup import RunSetup
from nmt.train.trainer import make_update

TIMED_UPDATES: Final = 3  # after a first one, which warms up


class DryRun:
    """An estimate of a run. Memory is in bytes of this rank's device; seconds, tokens and FLOPs are per update, of all ranks."""

    def __init__(
        self,
        run: Run,
        before: tuple[int, float],
        window: LogWindow,
        batches: int,
        tokens: int,
        memory: int,
        free: int,
    ) -> None:
        """before: updates made and epochs read so far; memory, free: see below

        window, batches, tokens: sums over TIMED_UPDATES updates
        """
        options, updates_per_epoch = run.options, run.loader.updates_per_epoch()
        seconds, _, _ = run.world.agree(window.seconds / TIMED_UPDATES, None, 0)
        tensors, _ = flat_optimizer(run.optimizer)
        last = last_update(options, updates_per_epoch, *before, seconds, 0.0)
        to_do = None if last is None else max(last - before[0], 0)
        self.model = run.facts.model
        self.parameters = sum(parameter.numel() for parameter in run.model.parameters())
        self.trainable = run.model.num_parameters()
        self.device = f"{run.device.type} ({options.precision})"
        self.ranks = run.world.size
        self.pairs = len(run.data.train)
        self.updates_per_epoch = updates_per_epoch
        self.first = before[0] + 1  # update
        self.last = last  # update; None if nothing but patience ends the run
        self.micro_batches = batches / TIMED_UPDATES  # per update and rank
        self.max_tokens = run.progress.limit.max_micro_batch_tokens  # of a micro-batch, padding counted
        self.target_tokens = tokens / TIMED_UPDATES
        self.padding = window.padding  # share of the positions that hold no token
        self.seconds = seconds
        self.flops = window.flops / TIMED_UPDATES
        self.memory = memory  # peak of the updates
        self.free = free  # before them
        self.checkpoint = size_of(tensors) + size_of(run.evaluated_weights())  # bytes on disk
        if run.average is not None:
            self.checkpoint += size_of(run.average.weights)
        self.kept = options.keep_last + options.keep_best if options.keep_last else None  # checkpoints; None for all
        self.hours = None if to_do is None else seconds * to_do / 3600  # of all updates; None if the run has no end
        self.eflop = None if to_do is None else self.flops * to_do / 1e18

    def lines(self) -> Iterator[str]:
        """The estimate as lines of text."""
        yield f"{self.model}: {parameter_text(self.parameters, self.trainable)} on {self.ranks} x {self.device}"
        yield f"data: {self.pairs:,} pairs, {self.updates_per_epoch:,} updates an epoch"
        yield (
            f"an update: {self.target_tokens:,.0f} target tokens in {self.micro_batches:.1f} micro-batches a device, one or "
            f"more for each of its {GROUPS_PER_UPDATE} groups of pairs of nearly one length, of at most {self.max_tokens:,} "
            f"tokens, {self.padding:.1%} padding; {self.seconds:.3g} s, {self.target_tokens / self.seconds:,.0f} "
            f"target tokens/s, {operations(self.flops / self.seconds)}/s"
        )
        yield f"memory: {size(self.memory)} at the peak; {size(self.free)} were free before"
        kept = "all kept" if self.kept is None else f"up to {self.kept} kept: {size(self.checkpoint * self.kept)}"
        yield f"a checkpoint: {size(self.checkpoint)} on disk, {kept}"
        if self.last is None:
            yield f"the run: from update {self.first:,} on, with no end set"
        elif self.last < self.first:
            yield f"the run: nothing to do, it ended at update {self.first - 1:,}"
        else:
            yield (
                f"the run: updates {self.first:,} to {self.last:,} ({self.last / self.updates_per_epoch:.1f} epochs in all), "
                f"{duration(self.hours or 0)} and {operations(1e18 * (self.eflop or 0))}; validation and checkpoints come on top"
            )
        yield "nothing was kept"


def dry_run_of(options: TrainOptions, parts: Any) -> DryRun:
    """Make a few updates from first weights, and estimate the run. Raises the errors of `train`."""
    setup = RunSetup(options)
    memory = Memory(setup.device)
    free = memory.free()
    with setup.joined():
        run = Run(setup, parts)
        if run.checkpoints.folder.is_dir() and (checkpoint := run.checkpoints.newest_valid()):
            state = SavedState.read(checkpoint)
            check_same(run, checkpoint.folder, state)
            run.progress.position, done = state.progress.position, state.progress.update
        else:
            begin(run)
            done = run.progress.update
        choose_kernels(run)
        memory.watch()
        return _estimate(run, done, memory, free)


def _estimate(run: Run, done: int, memory: Memory, free: int) -> DryRun:
    window, before = LogWindow(), (done, run.epochs)
    batches = tokens = 0
    run.model.train()
    with closing(ahead(run.loader.updates(run.progress.position))) as updates:
        for number, data in zip(range(1 + TIMED_UPDATES), updates, strict=False):
            began = time.monotonic()
            stats = make_update(run, data)
            if run.device.type == "cuda":
                torch.cuda.synchronize(run.device)
            seconds = time.monotonic() - began
            run.report.line(f"update {number + 1} of {1 + TIMED_UPDATES}: {seconds:.1f} s")
            if number:
                add_update(window, stats, flops_of(run, data), seconds)
                batches, tokens = batches + len(data.batches), tokens + stats.tokens  # those of skipped updates too
    return DryRun(run, before, window, batches, tokens, memory.peak(), free)
