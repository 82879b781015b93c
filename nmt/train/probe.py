"""Measurements on a device before the first update: which kernels are faster, and which micro-batch is the largest that fits."""

from collections.abc import Iterator
from typing import Final

from torch import nn

from nmt.batch import Batch, dummy_batch
from nmt.data.loader import Loader
from nmt.device import Memory, Precision, autocast, release_memory
from nmt.dist import World
from nmt.errors import ResourceError, is_out_of_memory
from nmt.train.parallel import copied_buffers, gradients_shared, in_step, put_buffers, sum_of_trained
from nmt.train.run import Run

MIN_PROBE_TOKENS: Final = 512
MAX_MEMORY_SHARE: Final = 0.8  # share of the free memory that may be used
OUT_OF_MEMORY_BYTES: Final = 1 << 60  # means "out of memory", because no device has this many bytes
OPTIMIZER_NUMBERS_PER_WEIGHT: Final = 2  # values per weight that the optimizer allocates at the first update


def choose_kernels(run: Run) -> None:
    """Choose kernels and the size of micro-batches for this device. What no option sets is chosen by measurement."""
    options, limit = run.options, run.progress.limit
    for speedup in run.speedups:
        speedup.before_updates(run)
    if (agree := getattr(run.optimizer, "agree", None)) is not None:
        run.report.line(f"--optimizer {run.settings['optimizer']}: {agree(run.world)}")
    asked = f"{options.max_tokens} on {run.world.size} x {run.device.type}"
    if limit.asked != asked:
        if limit.asked is not None:
            same = "gradients differ only in their last bits and in dropout"
            run.report.line(f"--max-tokens changed from {limit.asked} to {asked}; {same}")
        limit.asked = asked
        limit.max_tokens = limit.max_micro_batch_tokens = _max_tokens(run)
    run.loader.max_tokens = limit.max_tokens
    # Under fsdp, all ranks must split batches in the same way, but limits found under ddp may differ between ranks.
    if in_step(run.updater.objective):
        run.loader.max_tokens = min(limit.max_tokens, limit.max_micro_batch_tokens)


def _max_tokens(run: Run) -> int:
    """The maximum number of tokens per micro-batch, including padding: the option's value, or as many as fit on the device."""
    options, longest = run.options, run.loader.longest()
    if options.max_tokens == "auto":
        largest = run.loader.largest_micro_batch()
        max_tokens = find_max_tokens(run.updater.objective, run.loader, largest, options.precision, run.world)
        why = "no update needs larger ones" if max_tokens >= largest else "larger ones may not fit into memory"
        run.report.line(f"--max-tokens auto: up to {max_tokens:,} tokens per micro-batch; {why}")
        return max_tokens
    if options.max_tokens < longest:
        longer = f"longer pairs (up to {longest:,} tokens) form micro-batches of one pair"
        run.report.line(f"--max-tokens {options.max_tokens:,}: {longer}")
    return options.max_tokens


def find_max_tokens(objective: nn.Module, loader: Loader, largest: int, precision: Precision, world: World) -> int:
    """Find the largest micro-batch that fits, in tokens including padding, up to `largest`, the plan's maximum.

    Tries batches of the longest pairs. Each is twice as large as the previous one, while twice the memory is free. All
    ranks try the same batches, and the smallest device decides. Raises ResourceError if not even one pair fits.
    """
    weights, longest = list(objective.parameters()), loader.longest()
    memory = Memory(weights[0].device)
    trained = sum(weight.numel() * weight.element_size() for weight in weights if weight.requires_grad)
    optimizer_bytes = OPTIMIZER_NUMBERS_PER_WEIGHT * trained
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
        raise ResourceError(
            f"out of memory: not even one pair of {longest:,} tokens fits (use a smaller model, or nmt prepare --max-length)"
        )
    return max_tokens


def _sizes(longest: int, largest: int) -> Iterator[int]:
    """The tokens of the batches to try, in ascending order."""
    tokens = max(longest, MIN_PROBE_TOKENS)
    while tokens < largest:
        yield tokens
        tokens *= 2
    yield max(largest, longest)


def _peak(objective: nn.Module, memory: Memory, batch: Batch, precision: Precision) -> int:
    """The peak memory, in bytes, while the gradient of a batch is computed, or OUT_OF_MEMORY_BYTES if memory runs out."""
    memory.watch()
    buffers = copied_buffers(objective)
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
            raise ResourceError(
                f"out of memory while trying a micro-batch of {batch.cells:,} tokens (set --max-tokens to a number)"
            ) from None
        return OUT_OF_MEMORY_BYTES
    finally:
        objective.zero_grad(set_to_none=True)
        put_buffers(objective, buffers)
        release_memory()
