"""Wraps a model in PyTorch's engines for several devices: DDP, or FSDP2 for a model that does not fit on one device.

FSDP2 shards layers. A layer is an item of an nn.ModuleList that is called as a module. Both engines average the gradients
over the ranks. The loss of each rank is therefore multiplied by the number of ranks, which gives the sum.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from inspect import signature
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from nmt.batch import Batch
from nmt.criteria.base import Criterion, Loss
from nmt.dist import World
from nmt.errors import UserError
from nmt.models.base import Model, Output, Term


class Objective(nn.Module):
    """The loss of a micro-batch as one module, so that an engine sees every use of a weight in one forward pass."""

    def __init__(self, model: Model, criterion: Criterion) -> None:
        super().__init__()
        self.model, self.criterion = model, criterion

    def forward(self, batch: Batch) -> Loss:
        """Compute the parts of the criterion's loss, with the model's auxiliary losses among the trained parts."""
        reads: list[Output] = []
        with_gradient = torch.is_grad_enabled()

        def collect(model: nn.Module, inputs: tuple[Any, ...], output: Output) -> None:
            if torch.is_grad_enabled() == with_gradient:
                reads.append(output)

        hook = self.model.register_forward_hook(collect)
        try:
            trained, reported = self.criterion(self.model, batch)
        finally:
            hook.remove()
        # A pass through only the first layers may have no extra losses.
        losses = [read.extra_losses for read in reads if read.extra_losses]
        extra = self._extra_losses(batch, losses) if losses else {}
        statistics = _sums([read.reported for read in reads if read.reported])
        if clash := {**extra, **statistics}.keys() & {**trained, **reported}.keys():
            raise UserError(f"both the model and the criterion have a loss named '{min(clash)}' (rename one of them)")
        detached = {name: Term(term.total.detach(), term.count) for name, term in {**reported, **statistics}.items()}
        return Loss({**trained, **extra}, detached)

    def _extra_losses(self, batch: Batch, reads: Sequence[Mapping[str, Term]]) -> dict[str, Term]:
        """Compute each auxiliary loss: its mean over all passes of the criterion, times its count in the batch."""
        counts = self.model.extra_counts(batch)
        if any(read.keys() != counts.keys() for read in reads):
            names = sorted({name for read in reads for name in read})
            raise UserError(
                f"{type(self.model).__name__}: the output has the extra losses {names}, but `extra_counts` returns "
                f"{sorted(counts)} (make them equal)"
            )
        extra = {}
        for name, (total, read_count) in _sums(reads).items():
            count = counts[name]
            extra[name] = Term(total * (count / read_count.where(read_count != 0, 1)), count)
        return extra


def _sums(reads: Sequence[Mapping[str, Term]]) -> dict[str, Term]:
    """Add up the totals and the counts of terms with the same name."""
    names = reads[0] if reads else {}
    return {
        name: Term(*(torch.stack(values).sum() for values in zip(*(read[name] for read in reads), strict=True)))
        for name in names
    }


def sum_of_trained(loss: Loss) -> Tensor:
    """The sum of the totals of all trained parts: a scalar () with gradients."""
    return torch.stack([term.total for term in loss.trained.values()]).sum()


def saved_buffers(module: nn.Module) -> list[Tensor]:
    """The persistent buffers, which checkpoints save and a pass may change. Other buffers may be replaced by larger ones."""
    parts = ((part, part._non_persistent_buffers_set) for part in module.modules())
    return [
        buffer for part, left_out in parts for name, buffer in part.named_buffers(recurse=False) if name not in left_out
    ]


def copied_buffers(module: nn.Module) -> list[Tensor]:
    """Copies of `saved_buffers`, which `put_buffers` restores after passes that should leave no trace."""
    return [buffer.clone() for buffer in saved_buffers(module)]


def put_buffers(module: nn.Module, copies: Sequence[Tensor]) -> None:
    """Undo the changes that passes made to the buffers. copies: from `copied_buffers`, made before those passes"""
    for buffer, value in zip(saved_buffers(module), copies, strict=True):
        buffer.copy_(value)


def part_counts(model: Model, criterion: Criterion) -> Callable[[Batch], dict[str, Tensor]] | None:
    """A function that maps a batch to the counts of its trained parts, or None if the only part is `loss` per target token."""
    simple_model = type(model).extra_counts is Model.extra_counts and not model.auxiliary_losses
    if simple_model and type(criterion).counts is Criterion.counts:
        return None
    return lambda batch: {**criterion.counts(batch), **model.extra_counts(batch)}


def layers_of(module: nn.Module) -> list[nn.Module]:
    """The layers of a module, without duplicates and without the layers inside a layer."""
    layers: list[nn.Module] = []
    for child in module.children():
        if isinstance(child, ParametrizationList):  # holds parts of a weight, such as an adapter, and no layers
            continue
        layers += list(child) if isinstance(child, nn.ModuleList) else layers_of(child)
    return list(dict.fromkeys(layers))


def spread(model: Model, criterion: Criterion, world: World, engine: Literal["ddp", "fsdp"], batch: Batch) -> nn.Module:
    """Wrap the objective for all ranks. FSDP2 replaces the model's parameters, so build the optimizer afterwards.

    batch: data for a first pass, whose gradients are discarded
    """
    objective = Objective(model, criterion)
    if world.size == 1:
        return objective
    if engine == "fsdp":
        wrapped = _sharded(objective, world.size)
    else:
        from torch.nn.parallel import DistributedDataParallel

        known = signature(DistributedDataParallel).parameters
        name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # before torch 2.13
        no_buffers: dict[str, Any] = {name: False}
        wrapped = DistributedDataParallel(objective, gradient_as_bucket_view=True, **no_buffers)
    # The first pass decides which module is FSDP's root, and DDP rebuilds its gradient buckets after it. The first buckets
    # sum in a different order, so without this pass a resumed run would differ in its last bits.
    buffers = copied_buffers(wrapped)
    (0 * sum_of_trained(wrapped(batch))).backward()
    wrapped.zero_grad(set_to_none=True)
    put_buffers(wrapped, buffers)
    return wrapped


def _sharded(objective: Objective, ranks: int) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    for module in objective.modules():
        if check := getattr(module, "check_ranks", None):
            check(ranks)
    mesh = init_device_mesh(next(objective.parameters()).device.type, (ranks,))
    # Ranks gather a layer's weights at each call, so all ranks must call it the same number of times.
    if not objective.model.repeats_layers:
        for layer in layers_of(objective):
            fully_shard(layer, mesh=mesh)
    fully_shard(objective, mesh=mesh)
    return objective


@contextmanager
def gradients_shared(objective: nn.Module, last: bool) -> Iterator[None]:
    """Context for a micro-batch: gradients are summed locally, and over the ranks only in an update's last micro-batch."""
    engine: Any = objective
    if in_step(objective):
        engine.set_requires_gradient_sync(last)
    with engine.no_sync() if hasattr(engine, "no_sync") and not last else nullcontext():
        yield


def in_step(objective: nn.Module) -> bool:
    """Whether all ranks must make the same number of passes, because FSDP gathers the weights in each pass."""
    return hasattr(objective, "set_requires_gradient_sync")
