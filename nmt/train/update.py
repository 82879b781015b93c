"""One update: each part of the loss is divided by its count in the whole update, however the update is split."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Final, Protocol

import msgspec
import torch
from torch import Tensor, nn

from nmt import signals
from nmt.batch import Batch
from nmt.criteria.base import Loss
from nmt.data.loader import UpdateBatches
from nmt.device import Precision, autocast, release_memory
from nmt.dist import World, full_tensor
from nmt.errors import ResourceError, UserError, is_out_of_memory
from nmt.files import Count
from nmt.report.losses import LossSums, Stats
from nmt.symbols import PAD
from nmt.train.parallel import copied_buffers, gradients_shared, in_step, put_buffers

MAX_SCALE: Final = 2.0**24
SCALE_GROWTH_UPDATES: Final = 2000  # updates without overflow before the scale grows
MAX_PASS_SECONDS: Final = 19.0  # time limit for a micro-batch after a signal; then the process exits
FINISH_SECONDS: Final = 10.0  # time from a signal to the update's end; the rest of the 20 seconds is for the checkpoint
ASK_SECONDS: Final = 1.0  # interval between checks for a signal on another rank
PartNames = tuple[tuple[str, ...], tuple[str, ...]]  # names of the trained and of the reported parts of a loss
STOP_KEY: Final = "stop"  # key for a signal in the store that the ranks share


@dataclass
class LossScale:
    """The factor on the loss that keeps gradients from vanishing in fp16 (Micikevicius et al., 2018, section 3.2).

    It is a power of two, so it changes no bit of a gradient that neither vanishes nor overflows. An overflow halves it, but
    never to less than 1.

    factor: the current factor; good: updates without overflow since it last changed
    """

    factor: Annotated[float, msgspec.Meta(ge=1, le=MAX_SCALE)] = 2.0**15
    good: Count = 0

    def see(self, finite: bool) -> None:
        """Adapt the factor after an update. finite: whether the gradient was finite"""
        self.good = self.good + 1 if finite else 0
        if not finite:
            self.factor = max(self.factor / 2, 1.0)
        elif self.good == SCALE_GROWTH_UPDATES:
            self.factor, self.good = min(2 * self.factor, MAX_SCALE), 0


class UpdateGivenUp(Exception):
    """An update was abandoned because of a signal. Weights and buffers are as they were before the update."""


class SignalWatch:
    """Checks for a signal between the micro-batches of an update, and estimates when the update would end.

    The ranks vote before each pass in which they wait for each other. A rank that wants to stop skips its passes up to that vote.
    If any rank votes to stop, the update ends on all ranks.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._seconds_per_token = 0.0  # measured in the last update, including padding; 0 before the first
        self._signal_at: float | None = None  # when a rank received a signal
        self._began = self._asked = time.monotonic()
        self._must_finish = False

    def begin(self) -> None:
        """Start an update, and measure its passes from now on."""
        self._began, self._must_finish = time.monotonic(), False

    def check(self, done: int, left: int, together: bool, last: bool) -> None:
        """Raise UpdateGivenUp if a signal came and the update would end more than FINISH_SECONDS after the signal.

        done, left: tokens of the passes before and after this call, including padding
        together: whether ranks wait for each other in the next pass
        last: whether the next pass is the last of the update
        """
        if self._must_finish:
            return
        too_long = self._ends_too_late(done, left)
        if self.world.size > 1 and (together or too_long):
            too_long = self.world.any(too_long)
            self._must_finish = last  # even if that pass runs out of memory and is repeated
        if too_long:
            raise UpdateGivenUp

    def end(self, tokens: int) -> None:
        """End an update. tokens: the number of its tokens, including padding"""
        self._seconds_per_token = (time.monotonic() - self._began) / max(tokens, 1)

    def _ends_too_late(self, done: int, left: int) -> bool:
        now = time.monotonic()
        if self._signal_at is None and self._received(now):
            self._signal_at = now
        if self._signal_at is None:
            return False
        rate = max(self._seconds_per_token, (now - self._began) / done if done else 0.0)
        return now + left * rate > self._signal_at + FINISH_SECONDS

    def _received(self, now: float) -> bool:
        """Whether any rank received a signal. Tells the other ranks if this one did."""
        if signals.innermost().pending is not None:
            if self.world.size > 1:
                self.world.post(STOP_KEY, b"")
            return True
        if self.world.size == 1 or now < self._asked + ASK_SECONDS:
            return False
        self._asked = now
        return self.world.posted(STOP_KEY)


class PairTooLongError(ResourceError):
    """Memory ran out for a batch of a single pair. batch: that batch"""

    def __init__(self, message: str, batch: Batch) -> None:
        super().__init__(message)
        self.batch = batch


class _OutOfMemory(Exception):
    """Memory ran out in a micro-batch.

    largest: tokens of the largest micro-batch so far that can be split
    alone: whether no other rank waits for this one
    """

    def __init__(self, batch: Batch, largest: int, alone: bool) -> None:
        super().__init__()
        self.batch, self.largest, self.alone = batch, largest, alone


@contextmanager
def _out_of_memory_of(batch: Batch, largest: int, alone: bool) -> Iterator[None]:
    """Context that replaces a device's out-of-memory error with _OutOfMemory."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise _OutOfMemory(batch, largest, alone) from None


def flattened(loss: Loss) -> tuple[PartNames, Tensor]:
    """The names of a loss's parts, and a float64 vector with the totals of all parts and the counts of the reported parts."""
    terms = *loss.trained.values(), *loss.reported.values()
    totals = [term.total.detach().double() for term in terms]
    values = torch.stack([*totals, *(term.count.double() for term in loss.reported.values())])
    return (tuple(loss.trained), tuple(loss.reported)), values


class Passes(Protocol):
    """An alternative way to compute the gradients of micro-batches on one device."""

    def __call__(self, batch: Batch, factors: Mapping[str, float]) -> tuple[PartNames, Tensor]:
        """Add the gradient of a micro-batch to the parameters' gradients, in place.

        batch: on the CPU; factors: by which the trained parts of the loss are multiplied, by name
        returns: the loss in the form of `flattened`, valid until the next call
        """

    def gave_memory_back(self) -> bool:
        """Whether memory was freed when it last ran out, so that the same batch may fit now. A call resets this."""


class _DeviceSums:
    """The sums of the parts of a loss, kept on the device until an update is complete."""

    def __init__(self, names: Sequence[str], device: torch.device) -> None:
        self.names, self.device = names, device
        self.sums: Tensor | None = None
        self.parts: PartNames = (), ()

    def add(self, parts: PartNames, values: Tensor, share: float) -> None:
        """Add `share` times the values of a `flattened` loss. Raises UserError if the parts differ from the expected ones."""
        if self.sums is None:
            if set(parts[0]) != set(self.names):
                counted = f"but a batch has counts for {sorted(self.names)} (see `Criterion.counts`)"
                raise UserError(f"the loss has the trained parts {sorted(parts[0])}, {counted}")
            self.parts = parts
            self.sums = torch.zeros(len(parts[0]) + 2 * len(parts[1]), dtype=torch.float64, device=self.device)
        elif parts != self.parts:
            raise UserError(f"the parts of the loss changed from {self.parts} to {parts} within an update")
        self.sums += share * values

    def read(self, counts: Mapping[str, float], gradient_norm: Tensor) -> tuple[LossSums, float]:
        """Read the sums and the gradient norm () from the device in one transfer. counts: the counts of the trained parts"""
        trained, reported = self.parts
        assert self.sums is not None
        *values, norm = torch.cat([self.sums, gradient_norm.double()[None]]).tolist()
        totals = dict(zip((*trained, *reported), values, strict=False))
        sums = LossSums(trained, totals, {**counts, **dict(zip(reported, values[len(totals) :], strict=True))})
        return sums, norm


@dataclass(frozen=True)
class Updater:
    """Updates the weights of an objective (nmt.train.parallel) over the ranks of a world.

    clip_norm: the largest 2-norm of the gradient; 0 disables clipping
    counts: maps a batch to the counts of its trained parts; None if the only part is `loss` per target token
    watch: abandons an update after a signal; the default never does
    passes: an alternative way to compute the gradients of micro-batches on one device, or None
    """

    objective: nn.Module
    optimizer: torch.optim.Optimizer
    world: World
    precision: Precision
    clip_norm: float
    counts: Callable[[Batch], Mapping[str, Tensor]] | None = None
    watch: SignalWatch = field(default_factory=lambda: SignalWatch(World()))
    passes: Passes | None = None

    def __call__(self, data: UpdateBatches, seed: int, max_micro_batch_tokens: int, scale: LossScale | None) -> Stats:
        """Make one update of the weights. Each part of the loss is divided once, by its count over all ranks.

        data: this rank's share of the update
        seed: seed of the update's random draws
        max_micro_batch_tokens: larger micro-batches are split; if memory runs out, the update restarts with smaller ones
        scale: the loss scale for fp16, which adapts to the gradient; None otherwise
        Raises ResourceError if memory runs out and nothing can be split, and UpdateGivenUp after a signal.
        """
        self.watch.begin()
        factor = scale.factor if scale else 1.0
        counts = self._counts(data)
        factors = {name: factor / count if count else 0.0 for name, count in counts.items()}
        sums, batches, max_micro_batch_tokens = self._gradient(data, seed, max_micro_batch_tokens, factors)
        self.world.sum(sums.sums)
        if factor != 1:
            torch._foreach_mul_([p.grad for p in self.objective.parameters() if p.grad is not None], 1 / factor)
        norm = full_tensor(nn.utils.clip_grad_norm_(self.objective.parameters(), self.clip_norm or math.inf))
        losses, gradient_norm = sums.read(counts, norm)  # the only place that waits for the device
        applied = math.isfinite(gradient_norm) and all(math.isfinite(losses.totals[name]) for name in losses.trained)
        if applied:
            self.optimizer.step()
        self.clear_gradients()
        if scale:
            scale.see(applied)
        sides = [side for batch in batches for side in (batch.source, batch.target_output)]
        real, cells = sum(int((side != PAD).sum()) for side in sides), sum(side.numel() for side in sides)
        self.watch.end(sum(batch.cells for batch in batches))
        return Stats(losses, data.tokens, real, cells, gradient_norm, applied, max_micro_batch_tokens)

    def clear_gradients(self) -> None:
        """Clear the gradients. Alternative passes need the new ones at the same addresses."""
        self.optimizer.zero_grad(set_to_none=self.passes is None)

    def _counts(self, data: UpdateBatches) -> dict[str, float]:
        """The count of each trained part over the update, on all ranks."""
        if self.counts is None:
            return {"loss": float(data.tokens)}
        counts = [self.counts(batch) for batch in data.batches]
        own = counts[: len(counts) - data.idle]
        sums = torch.tensor([sum(float(count[name]) for count in own) for name in counts[0]], dtype=torch.float64)
        self.world.sum(sums)
        return dict(zip(counts[0], sums.tolist(), strict=True))

    def _gradient(
        self, data: UpdateBatches, seed: int, max_micro_batch_tokens: int, factors: Mapping[str, float]
    ) -> tuple[_DeviceSums, list[Batch], int]:
        """Compute the gradient; return the sums of the loss's parts, the micro-batches except idle ones, and the token limit."""
        first_idle = len(data.batches) - data.idle
        gave_back = False  # whether memory was already freed, which is possible only once
        while True:
            counted = [part for batch in data.batches[:first_idle] for part in batch.split(max_micro_batch_tokens)]
            torch.manual_seed(seed)
            try:
                with self._undone_unless_complete():
                    return self._backward(counted, data.batches[first_idle:], factors), counted, max_micro_batch_tokens
            except _OutOfMemory as error:
                if gave_back or self.passes is None or not self.passes.gave_memory_back():
                    max_micro_batch_tokens = self._smaller(error)
                else:
                    gave_back = True
            release_memory()

    @contextmanager
    def _undone_unless_complete(self) -> Iterator[None]:
        """Context that undoes the changes of an update's passes if a signal or a lack of memory ends them."""
        buffers = copied_buffers(self.objective)
        try:
            yield
        except (UpdateGivenUp, _OutOfMemory):
            self.clear_gradients()
            put_buffers(self.objective, buffers)
            raise

    def _backward(self, counted: Sequence[Batch], idle: Sequence[Batch], factors: Mapping[str, float]) -> _DeviceSums:
        """Sum the gradients of micro-batches. Idle micro-batches do not count."""
        sums = _DeviceSums(list(factors), next(self.objective.parameters()).device)
        passes = [*((batch, 1.0) for batch in counted), *((batch, 0.0) for batch in idle)]
        cells, divisible = [batch.cells for batch, _ in passes], 0  # tokens of the largest splittable batch so far
        for number, (batch, share) in enumerate(passes):
            is_last = number == len(passes) - 1
            self.watch.check(sum(cells[:number]), sum(cells[number:]), is_last or in_step(self.objective), is_last)
            divisible = max(divisible, cells[number] if len(batch) > 1 else 0)
            largest = divisible or cells[number]
            if self.passes is None:
                self._pass(batch, share, factors, sums, largest, is_last)
            else:
                with _out_of_memory_of(batch, largest, alone=True):
                    sums.add(*self.passes(batch, factors), share)
        return sums

    def _pass(
        self, batch: Batch, share: float, factors: Mapping[str, float], sums: _DeviceSums, largest: int, is_last: bool
    ) -> None:
        """Add `share` times the gradient and the losses of a micro-batch. largest: see `_OutOfMemory`"""
        with gradients_shared(self.objective, is_last):
            with _out_of_memory_of(batch, largest, alone=True), autocast(sums.device, self.precision):
                loss = self.objective(batch.to(sums.device))
            # In the last pass the other ranks wait for this rank's gradient.
            with _out_of_memory_of(batch, largest, alone=self.world.size == 1 or not is_last):
                sums.add(*flattened(loss), share)
                # A factor is 1 / (count over all ranks). The engine averages gradients over the ranks, so it is multiplied
                # by their number.
                first, *others = (
                    term.total * (share * self.world.size * factors[name]) for name, term in loss.trained.items()
                )
                sum(others, first).backward()

    def _smaller(self, error: _OutOfMemory) -> int:
        """The token limit after memory ran out. Raises ResourceError if smaller micro-batches cannot help."""
        message = f"out of memory in a micro-batch of {error.batch.cells:,} tokens, including padding"
        if len(error.batch) == 1:
            raise PairTooLongError(f"{message}, from a single pair", error.batch)
        if not error.alone or (self.world.size > 1 and in_step(self.objective)):
            raise ResourceError(f"{message}, while other ranks waited (use a smaller --max-tokens)")
        return max(error.largest // 2, 1)
