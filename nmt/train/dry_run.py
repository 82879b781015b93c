"""`nmt train --dry-run`: a few updates of a run of which nothing is kept, and what they say of the whole of it."""

import math
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import torch

from nmt.checkpoint import flat_optimizer, weights_of
from nmt.data.loader import ahead
from nmt.device import Memory
from nmt.report.training import Window
from nmt.train.run import Run, Saved, TrainOptions
from nmt.train.setup import RunSetup, build_run, products_as, settle
from nmt.train.trainer import count, flops_of, make_update

UPDATES: Final = 3  # that are timed, after a first one


@dataclass(frozen=True)
class DryRun:
    """What a run would be. Bytes are of this rank's device; seconds, tokens and FLOPs of all ranks.

    first, last: the updates it would make, last None where nothing ends it but patience
    micro_batches: of an update on a rank; max_tokens: of each at most, padding counted; padding: share of the cells
    memory: peak of the updates; free: what was free before; checkpoint: of one on disk; kept: how many stay there
    """

    model: str
    parameters: int
    device: str
    ranks: int
    pairs: int
    updates_per_epoch: int
    first: int
    last: int | None
    micro_batches: float
    max_tokens: int
    target_tokens: float
    padding: float
    seconds: float
    flops: float
    memory: int
    free: int
    checkpoint: int
    kept: int | None

    @property
    def hours(self) -> float | None:
        """Of all updates; None where the run has no end."""
        return None if self.last is None else self.seconds * max(self.last - self.first + 1, 0) / 3600

    @property
    def eflop(self) -> float | None:
        """Of all updates; None where the run has no end."""
        return None if self.last is None else self.flops * max(self.last - self.first + 1, 0) / 1e18

    def lines(self) -> Iterator[str]:
        """As a person reads it."""
        yield f"{self.model}: {self.parameters:,} parameters on {self.ranks} x {self.device}"
        yield f"data: {self.pairs:,} pairs, {self.updates_per_epoch:,} updates an epoch"
        yield (
            f"an update: {self.target_tokens:,.0f} target tokens in {self.micro_batches:.1f} micro-batches a device of at most "
            f"{self.max_tokens:,}, {self.padding:.1%} padding; {self.seconds:.3g} s, {self.target_tokens / self.seconds:,.0f} "
            f"target tokens/s, {self.flops / self.seconds / 1e12:.3g} TFLOP/s"
        )
        yield f"memory: {_size(self.memory)} at the peak; {_size(self.free)} were free before"
        kept = "all kept" if self.kept is None else f"up to {self.kept} kept: {_size(self.checkpoint * self.kept)}"
        yield f"a checkpoint: {_size(self.checkpoint)} on disk, {kept}"
        if self.last is None:
            yield f"the run: from update {self.first:,} on, with no end set"
        elif self.last < self.first:
            yield f"the run: nothing to do, it ended at update {self.first - 1:,}"
        else:
            yield (
                f"the run: updates {self.first:,} to {self.last:,} ({self.last / self.updates_per_epoch:.1f} epochs in all), "
                f"{_duration(self.hours or 0)} and {self.eflop:.3g} EFLOP; validation and checkpoints come on top"
            )
        yield "nothing was kept"


def dry_run_of(options: TrainOptions, parts: Any) -> DryRun:
    """Make a few updates from fresh weights, and tell what the run would be. Errors are those of `train`."""
    setup = RunSetup.of(options)
    memory = Memory(setup.device)
    free = memory.free()
    joined = setup.world.joined(setup.device.type, options.timeout)
    with joined, products_as(setup.device, options.precision):
        run = build_run(options, parts, setup)
        done = _done(run)
        settle(run)
        memory.watch()
        return _of_updates(run, done, memory, free)


def _done(run: Run) -> int:
    """Updates that the run folder has already; raises UserError or ArtefactError if it cannot go on like this."""
    found = run.checkpoints.newest_valid() if run.checkpoints.folder.is_dir() else None
    if found is None:
        return 0
    state = Saved.read(found)
    run.check_same(found.folder, state)
    return state.progress.update


def _of_updates(run: Run, done: int, memory: Memory, free: int) -> DryRun:
    options, loader, window = run.options, run.loader, Window()
    batches = tokens = 0
    run.model.train()
    with closing(ahead(loader.updates(run.progress.position))) as updates:
        for number, data in zip(range(1 + UPDATES), updates, strict=False):
            began = time.monotonic()
            stats, _ = make_update(run, data)
            if run.device.type == "cuda":
                torch.cuda.synchronize(run.device)
            took = time.monotonic() - began
            run.report.line(f"update {number + 1} of {1 + UPDATES}: {took:.1f} s")
            if number:  # the first one warms up
                count(window, stats, flops_of(run.model, data), took)
                batches, tokens = batches + len(data.batches), tokens + stats.tokens  # also of one that was skipped
    seconds, _, _ = run.world.agree(window.seconds / UPDATES, None, 0)
    tensors, _ = flat_optimizer(run.optimizer)
    kept = [*tensors.values(), *weights_of(run.model).values()]
    return DryRun(
        model=run.facts.model,
        parameters=run.model.num_parameters(),
        device=f"{run.device.type} ({options.precision})",
        ranks=run.world.size,
        pairs=len(run.data.train),
        updates_per_epoch=loader.updates_per_epoch(),
        first=done + 1,
        last=_last(options, loader.updates_per_epoch(), done, seconds),
        micro_batches=batches / UPDATES,
        max_tokens=run.progress.limit.max_micro_batch_tokens,
        target_tokens=tokens / UPDATES,
        padding=window.padding,
        seconds=seconds,
        flops=window.flops / UPDATES,
        memory=memory.peak(),
        free=free,
        checkpoint=sum(tensor.numel() * tensor.element_size() for tensor in kept),
        kept=options.keep_last + options.keep_best if options.keep_last else None,
    )


def _last(options: TrainOptions, updates_per_epoch: int, done: int, seconds: float) -> int | None:
    """The last update, by whichever of updates, epochs and minutes ends the run first."""
    ends = [options.max_updates] if options.max_updates is not None else []
    ends += [options.max_epochs * updates_per_epoch] if options.max_epochs is not None else []
    ends += [done + math.ceil(60 * options.max_minutes / seconds)] if options.max_minutes is not None else []
    return min(ends, default=None)


def _size(number: int) -> str:
    return f"{number / 1e9:.2f} GB" if number >= 1e8 else f"{number / 1e6:.1f} MB"


def _duration(hours: float) -> str:
    return f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.1f} min"
