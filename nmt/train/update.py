"""One update: the gradient of the mean loss over all its target tokens, however they are cut into micro-batches."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn

from nmt.batch import Batch
from nmt.criteria.base import Criterion
from nmt.models.base import Model
from nmt.symbols import PAD

# Of the products of an update: forward, for the gradient of their input, for the gradient of the weights.
PASSES: Final = 3


@dataclass(frozen=True)
class Stats:
    """What one update saw. loss, nll: sums in nats; tokens: target tokens; real, cells: both sides, without and with padding.

    flops: what it cost, padding not counted
    applied: False when loss or gradient was not finite and the weights were left alone
    """

    loss: float
    nll: float
    tokens: int
    real: int
    cells: int
    flops: int
    gradient_norm: float
    applied: bool


def update(
    model: Model,
    criterion: Criterion,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Batch],
    autocast: AbstractContextManager[object],
    clip_norm: float,
) -> Stats:
    """Make one update of the weights. The sums of all micro-batches are divided once, by the tokens of all of them.

    clip_norm: the largest 2-norm of the gradient; 0 leaves it as it is
    """
    device = next(model.parameters()).device
    tokens = sum(int(batch.num_target_tokens) for batch in batches)
    sums = torch.zeros(2, dtype=torch.float64, device=device)
    for batch in batches:
        with autocast:
            loss = criterion(model, on_device(device, batch))
        (loss.total / tokens).backward()
        sums += torch.stack([loss.total.detach(), loss.parts["nll"]])
    norm = nn.utils.clip_grad_norm_(model.parameters(), clip_norm or math.inf)
    total, nll, found_norm = (*sums.tolist(), float(norm))  # the one place that waits for the device
    applied = math.isfinite(total) and math.isfinite(found_norm)
    if applied:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    real = sum(int((side != PAD).sum()) for batch in batches for side in (batch.source, batch.target_output))
    cells = sum(side.numel() for batch in batches for side in (batch.source, batch.target_output))
    return Stats(total, nll, tokens, real, cells, cost(model, batches), found_norm, applied)


def cost(model: Model, batches: Sequence[Batch]) -> int:
    """FLOPs of an update on these pairs: the same for any cut into micro-batches, for padding does not count."""
    source = torch.cat([(batch.source != PAD).sum(1) for batch in batches])
    target = torch.cat([(batch.target_output != PAD).sum(1) for batch in batches])
    return PASSES * int(model.flops(source, target).sum())


def on_device(device: torch.device, batch: Batch) -> Batch:
    """The batch where the model is."""
    return Batch(batch.source.to(device, non_blocking=True), batch.target.to(device, non_blocking=True))
