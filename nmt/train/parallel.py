"""A model over many devices, by PyTorch's own engines: DDP, and FSDP2 where it does not fit one device.

Either averages the gradients of all ranks; the loss of each is multiplied by their number, so that what comes is the sum.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from inspect import signature
from typing import Any, Literal

from torch import Tensor, nn

from nmt.batch import Batch, dummy_batch
from nmt.criteria.base import Criterion
from nmt.dist import World
from nmt.models.base import Model
from nmt.train.layer_wrapping import layers_of

Engine = Literal["ddp", "fsdp"]


class Objective(nn.Module):
    """The loss of a micro-batch as one module: whatever uses a weight does so inside it, where an engine can see it."""

    def __init__(self, model: Model, criterion: Criterion) -> None:
        super().__init__()
        self.model, self.criterion = model, criterion

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Two sums in nats: the loss, and the negative log-likelihood without gradient."""
        loss = self.criterion(self.model, batch)
        return loss.total, loss.parts["nll"]


def spread(model: Model, criterion: Criterion, world: World, engine: Engine) -> nn.Module:
    """The objective over all ranks. FSDP2 replaces the model's parameters: an optimizer is to be built after it."""
    objective = Objective(model, criterion)
    if world.size == 1:
        return objective
    spread_out = _replicated(objective) if engine == "ddp" else _sharded(objective, world.size)
    # The first pass decides which module is FSDP's root, and after it DDP deals the gradients out anew: before it sums
    # have another order, so that a run that goes on would differ in its last bits.
    device = next(model.parameters()).device
    total, _ = spread_out(dummy_batch(1, 1, 1).to(device))
    (0 * total).backward()
    spread_out.zero_grad(set_to_none=True)
    return spread_out


def _replicated(objective: Objective) -> nn.Module:
    from torch.nn.parallel import DistributedDataParallel

    if "forward_sync_buffers" in signature(DistributedDataParallel).parameters:  # from torch 2.13 on
        return DistributedDataParallel(objective, gradient_as_bucket_view=True, forward_sync_buffers=False)
    return DistributedDataParallel(objective, gradient_as_bucket_view=True, broadcast_buffers=False)


def _sharded(objective: Objective, ranks: int) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(objective.parameters()).device.type, (ranks,))
    for layer in layers_of(objective):
        fully_shard(layer, mesh=mesh)
    fully_shard(objective, mesh=mesh)
    return objective


@contextmanager
def gradients_shared(objective: nn.Module, last: bool) -> Iterator[None]:
    """Around a micro-batch: gradients are summed here, and over the ranks with the last of an update alone."""
    engine: Any = objective
    if in_step(objective):
        engine.set_requires_gradient_sync(last)
    with engine.no_sync() if hasattr(engine, "no_sync") and not last else nullcontext():
        yield


def in_step(objective: nn.Module) -> bool:
    """Whether each rank has to make as many passes as the others: FSDP puts the weights together for each."""
    return hasattr(objective, "set_requires_gradient_sync")
