"""One update: the gradient of the mean loss over all its target tokens, however they are cut into micro-batches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from nmt.batch import Batch
from nmt.data.loader import UpdateBatches
from nmt.device import Precision, autocast, give_back
from nmt.dist import World, whole
from nmt.errors import ResourceError, is_out_of_memory
from nmt.symbols import PAD
from nmt.train.parallel import gradients_shared, in_step

FIRST_SCALE: Final = 2.0**15
MOST_SCALE: Final = 2.0**24
GROWS_AFTER: Final = 2000  # updates without overflow


@dataclass
class LossScale:
    """What a loss is multiplied by, so that its gradient does not vanish in fp16 (Micikevicius et al., 2018, section 3.2).

    A power of two, so that it changes no bit of what neither vanishes nor overflows; halved by an overflow, never below 1.
    factor: of now; good: updates since it was changed
    """

    factor: float = FIRST_SCALE
    good: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.factor <= MOST_SCALE or self.good < 0:
            raise ValueError(f"a loss scale of {self.factor} after {self.good} updates")

    def see(self, finite: bool) -> None:
        """Note whether an update's gradient was finite."""
        self.good = self.good + 1 if finite else 0
        if not finite:
            self.factor = max(self.factor / 2, 1.0)
        elif self.good == GROWS_AFTER:
            self.factor, self.good = min(2 * self.factor, MOST_SCALE), 0


@dataclass(frozen=True)
class Stats:
    """What one update saw. loss, nll: sums in nats; tokens: target tokens, all three of all ranks.

    real, cells: tokens of both sides of this rank's share, without and with padding
    applied: False when loss or gradient was not finite and the weights were left alone
    max_micro_batch_tokens: tokens, padding counted, of a micro-batch that the device was found to hold
    """

    loss: float
    nll: float
    tokens: int
    real: int
    cells: int
    gradient_norm: float
    applied: bool
    max_micro_batch_tokens: int


class _OutOfMemory(Exception):
    """Memory ran out in a micro-batch. largest: tokens of the largest that was tried in this update; alone: see `_backward`"""

    def __init__(self, batch: Batch, largest: int, alone: bool) -> None:
        super().__init__()
        self.rows, self.cells, self.largest, self.alone = len(batch), batch.cells, largest, alone


@dataclass(frozen=True)
class Updater:
    """Makes updates of an objective (nmt.train.parallel) over the ranks of a world.

    clip_norm: the largest 2-norm of the gradient; 0 leaves it as it is
    """

    objective: nn.Module
    optimizer: torch.optim.Optimizer
    world: World
    precision: Precision
    clip_norm: float

    def __call__(self, data: UpdateBatches, seed: int, max_micro_batch_tokens: int, scale: LossScale | None) -> Stats:
        """Make one update of the weights. The sums of all micro-batches of all ranks are divided once, by the tokens of all.

        data: this rank's share of the update; seed: of what is drawn in it; scale: of fp16, which learns from it
        max_micro_batch_tokens: micro-batches of more tokens are cut; an update that runs out of memory is begun
            anew with smaller ones
        Raises ResourceError when memory runs out and nothing can be cut.
        """
        factor = scale.factor if scale else 1.0
        sums, batches, max_micro_batch_tokens = self._gradient(data, seed, max_micro_batch_tokens, factor)
        self.world.sum(sums)
        if factor != 1:
            torch._foreach_mul_([p.grad for p in self.objective.parameters() if p.grad is not None], 1 / factor)
        norm = whole(nn.utils.clip_grad_norm_(self.objective.parameters(), self.clip_norm or math.inf))
        loss, nll, found_norm = (*sums.tolist(), float(norm))  # the one place that waits for the device
        applied = math.isfinite(loss) and math.isfinite(found_norm)
        if applied:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if scale:
            scale.see(applied)
        sides = [side for batch in batches for side in (batch.source, batch.target_output)]
        real, cells = sum(int((side != PAD).sum()) for side in sides), sum(side.numel() for side in sides)
        return Stats(loss, nll, data.tokens, real, cells, found_norm, applied, max_micro_batch_tokens)

    def _gradient(
        self, data: UpdateBatches, seed: int, max_micro_batch_tokens: int, factor: float
    ) -> tuple[Tensor, list[Batch], int]:
        """(sums of loss and negative log-likelihood, the micro-batches that count, what the device was found to hold)."""
        while True:
            first_idle = len(data.batches) - data.idle
            idle = data.batches[first_idle:]
            counted = [part for batch in data.batches[:first_idle] for part in batch.split(max_micro_batch_tokens)]
            torch.manual_seed(seed)
            try:
                return self._backward(counted, idle, factor / data.tokens), counted, max_micro_batch_tokens
            except _OutOfMemory as found:
                max_micro_batch_tokens = self._less(found)
            self.optimizer.zero_grad(set_to_none=True)
            give_back()

    def _backward(self, counted: Sequence[Batch], idle: Sequence[Batch], factor: float) -> Tensor:
        """Sum up the gradients of micro-batches. factor: of each loss; idle: those whose gradients do not count."""
        device = next(self.objective.parameters()).device
        sums = torch.zeros(2, dtype=torch.float64, device=device)
        passes = [*((batch, 1.0) for batch in counted), *((batch, 0.0) for batch in idle)]
        for left, (batch, share) in zip(reversed(range(len(passes))), passes, strict=True):
            alone = True  # nothing of this pass has been waited for by another rank
            try:
                with gradients_shared(self.objective, last=left == 0):
                    with autocast(device, self.precision):
                        total, nll = self.objective(batch.to(device))
                    alone = self.world.size == 1 or left > 0
                    (total * (share * self.world.size * factor)).backward()
            except Exception as error:
                if is_out_of_memory(error):
                    tried = passes[: len(passes) - left]
                    raise _OutOfMemory(batch, max(one.cells for one, _ in tried), alone) from None
                raise
            sums += share * torch.stack([total.detach(), nll])
        return sums

    def _less(self, found: _OutOfMemory) -> int:
        """What a micro-batch may hold after memory ran out. Raises ResourceError when that is no way out."""
        asked = f"out of memory in a micro-batch of {found.cells:,} tokens, padding counted"
        if found.rows == 1:
            raise ResourceError(f"{asked}, which is a single pair (give nmt prepare a smaller --max-length)")
        if not found.alone or (self.world.size > 1 and in_step(self.objective)):
            raise ResourceError(f"{asked}, while other ranks waited (give a --max-tokens below it)")
        return max(found.largest // 2, 1)
