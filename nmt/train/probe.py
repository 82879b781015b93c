"""Probing a device before the first update: shapes for measuring products, and the largest micro-batch that fits."""

from collections.abc import Iterator
from typing import Final

from torch import nn

from nmt.batch import Batch, dummy_batch
from nmt.data.loader import Loader
from nmt.device import Memory, Precision, autocast, release_memory
from nmt.dist import World
from nmt.errors import ResourceError, is_out_of_memory
from nmt.train.parallel import gradients_shared, in_step, sum_of_trained

MIN_PROBE_TOKENS: Final = 512
MAX_MEMORY_SHARE: Final = 0.8  # of the free memory
PRODUCT_ROWS: Final = 1024
OUT_OF_MEMORY_BYTES: Final = 1 << 60  # more than any device has
OPTIMIZER_NUMBERS_PER_WEIGHT: Final = 2  # from the first update on


def products(model: nn.Module) -> tuple[int, int, int]:
    """(rows, inputs, outputs) of the most common kind of product in the model's layers."""
    outputs, inputs = max((weight.shape for weight in model.parameters() if weight.ndim == 2), key=min)
    return PRODUCT_ROWS, inputs, min(outputs, 4 * inputs)


def find_max_tokens(objective: nn.Module, loader: Loader, largest: int, precision: Precision, world: World) -> int:
    """Tokens of the largest micro-batch that fits, padding counted; at most `largest`, that of the plan.

    Probes batches of the longest pairs, each twice as large as the previous, while twice the memory is free. All ranks
    probe the same batches; the smallest device decides. Raises ResourceError when not even one pair fits.
    """
    weights, longest = list(objective.parameters()), loader.longest()
    memory = Memory(weights[0].device)
    optimizer_bytes = OPTIMIZER_NUMBERS_PER_WEIGHT * sum(weight.numel() * weight.element_size() for weight in weights)
    memory.watch()
    before = memory.peak()
    processes = 1 if memory.on_gpu else world.local_size
    available = world.minimum(int(MAX_MEMORY_SHARE * memory.free() / processes) - optimizer_bytes)
    max_tokens = 0
    for tokens in _sizes(longest, largest):
        batch = dummy_batch(max(tokens // longest, 1), longest, longest, loader.column_kinds)
        left = world.minimum(available - (_peak(objective, memory, batch, precision) - before))
        if left < 0:
            break
        max_tokens = tokens
        if left < available - left:  # twice as many would not fit
            break
    if not max_tokens:
        raise ResourceError(f"not even one pair of {longest:,} tokens fits into memory (give nmt prepare --max-length)")
    return max_tokens


def _sizes(longest: int, largest: int) -> Iterator[int]:
    """Tokens of the batches to probe, ascending."""
    tokens = max(longest, MIN_PROBE_TOKENS)
    while tokens < largest:
        yield tokens
        tokens *= 2
    yield max(largest, longest)


def _peak(objective: nn.Module, memory: Memory, batch: Batch, precision: Precision) -> int:
    """Peak bytes of a gradient of this batch; OUT_OF_MEMORY_BYTES when memory runs out."""
    memory.watch()
    try:
        with gradients_shared(objective, last=in_step(objective)):  # FSDP frees only gradients that it has reduced
            with autocast(memory.device, precision):
                loss = objective(batch.to(memory.device))
            sum_of_trained(loss).backward()
        return memory.peak()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        if in_step(objective):
            raise ResourceError(f"out of memory in a trial of {batch.cells:,} tokens (give --max-tokens)") from None
        return OUT_OF_MEMORY_BYTES
    finally:
        objective.zero_grad(set_to_none=True)
        release_memory()
