"""One update: the gradient of the mean loss over all its target tokens, however they are cut into micro-batches."""

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import nn

from nmt.batch import Batch
from nmt.data.loader import UpdateBatches
from nmt.dist import World, whole
from nmt.symbols import PAD
from nmt.train.parallel import gradients_shared


@dataclass(frozen=True)
class Stats:
    """What one update saw. loss, nll: sums in nats; tokens: target tokens, all three of all ranks.

    real, cells: tokens of both sides of this rank's share, without and with padding
    applied: False when loss or gradient was not finite and the weights were left alone
    """

    loss: float
    nll: float
    tokens: int
    real: int
    cells: int
    gradient_norm: float
    applied: bool


def update(
    objective: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: UpdateBatches,
    autocast: AbstractContextManager[object],
    clip_norm: float,
    world: World,
) -> Stats:
    """Make one update of the weights. The sums of all micro-batches of all ranks are divided once, by the tokens of all.

    objective: of nmt.train.parallel; data: this rank's share of the update
    clip_norm: the largest 2-norm of the gradient; 0 leaves it as it is
    """
    device = next(objective.parameters()).device
    sums = torch.zeros(2, dtype=torch.float64, device=device)
    for left, batch in zip(reversed(range(len(data.batches))), data.batches, strict=True):
        share = 0.0 if left < data.idle else 1.0
        with gradients_shared(objective, last=left == 0):
            with autocast:
                total, nll = objective(on_device(device, batch))
            (total * (share * world.size / data.tokens)).backward()
        sums += share * torch.stack([total.detach(), nll])
    world.sum(sums)
    norm = whole(nn.utils.clip_grad_norm_(objective.parameters(), clip_norm or math.inf))
    loss, all_nll, found_norm = (*sums.tolist(), float(norm))  # the one place that waits for the device
    applied = math.isfinite(loss) and math.isfinite(found_norm)
    if applied:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    own = data.batches[: len(data.batches) - data.idle]
    real = sum(int((side != PAD).sum()) for batch in own for side in (batch.source, batch.target_output))
    cells = sum(side.numel() for batch in own for side in (batch.source, batch.target_output))
    return Stats(loss, all_nll, data.tokens, real, cells, found_norm, applied)


def on_device(device: torch.device, batch: Batch) -> Batch:
    """The batch where the model is."""
    return Batch(batch.source.to(device, non_blocking=True), batch.target.to(device, non_blocking=True))
