"""A model over many devices, by PyTorch's own engines: DDP, and FSDP2 where it does not fit one device.

Either averages the gradients of all ranks; the loss of each is multiplied by their number, so that what comes is the sum.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from inspect import signature
from typing import Any, Literal

from torch import Tensor, nn

from nmt.batch import Batch
from nmt.criteria.base import Criterion
from nmt.dist import World
from nmt.models.base import Model

Engine = Literal["ddp", "fsdp"]


class Step(nn.Module):
    """The loss of a micro-batch as one module: whatever uses a weight does so inside it, where an engine can see it."""

    def __init__(self, model: Model, criterion: Criterion) -> None:
        super().__init__()
        self.model, self.criterion = model, criterion

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Two sums in nats: the loss, and the negative log-likelihood without gradient."""
        loss = self.criterion(self.model, batch)
        return loss.total, loss.parts["nll"]


def spread(model: Model, criterion: Criterion, world: World, engine: Engine) -> nn.Module:
    """The step over all ranks; FSDP2 replaces the model's parameters, so that an optimizer is to be built after it."""
    step = Step(model, criterion)
    if world.size == 1:
        return step
    if engine == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        known = signature(DistributedDataParallel).parameters
        buffers: Any = {name: False for name in ("forward_sync_buffers",) if name in known}  # torch 2.13
        return DistributedDataParallel(step, gradient_as_bucket_view=True, **buffers or {"broadcast_buffers": False})
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(model.parameters()).device.type, (world.size,))
    for stack in [module for module in model.modules() if isinstance(module, nn.ModuleList)]:
        for layer in stack:
            fully_shard(layer, mesh=mesh)
    fully_shard(step, mesh=mesh)
    return step


@contextmanager
def gradients_shared(step: nn.Module, last: bool) -> Iterator[None]:
    """Around a micro-batch: gradients are summed here, and over the ranks with the last of an update alone."""
    engine: Any = step
    if hasattr(engine, "set_requires_gradient_sync"):
        engine.set_requires_gradient_sync(last)
    with engine.no_sync() if hasattr(engine, "no_sync") and not last else nullcontext():
        yield


@contextmanager
def whole_model(step: nn.Module) -> Iterator[None]:
    """While entered each rank has all the parameters, so that it can search without waiting for the others."""
    shards: list[Any] = [module for module in step.modules() if hasattr(module, "unshard")]
    for module in shards:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        for module in shards:
            module.set_reshard_after_forward(True, recurse=False)
            module.reshard()
