"""What is tried before the first update: products of the model's size, and how large a micro-batch the device holds."""

from collections.abc import Iterator, Mapping

from torch import nn

from nmt.batch import Batch, dummy_batch
from nmt.device import Memory, Precision, autocast, release_memory
from nmt.dist import World
from nmt.errors import ResourceError, is_out_of_memory
from nmt.symbols import ColumnKind
from nmt.train.parallel import gradients_shared, in_step, sum_of_trained

FIRST_TOKENS = 512  # of the smallest micro-batch that is tried
PART = 0.8  # of the free memory that training may take
ROWS = 1024  # of the products that are measured
MORE_THAN_ANY = 1 << 60  # bytes
OF_OPTIMIZER = 2  # numbers that it keeps for each weight, from the first update on


def products(model: nn.Module) -> tuple[int, int, int]:
    """(rows, inputs, outputs) of the kind of product that the model's layers make most of."""
    outputs, inputs = max((weight.shape for weight in model.parameters() if weight.ndim == 2), key=min)
    return ROWS, inputs, min(outputs, 4 * inputs)


def find_max_tokens(
    objective: nn.Module,
    longest: int,
    largest: int,
    precision: Precision,
    world: World,
    columns: Mapping[str, ColumnKind] | None = None,
) -> int:
    """Tokens of the largest micro-batch that the plan asks for, padding counted, or fewer if the device holds fewer.

    longest, largest: tokens of the longest pair and of that micro-batch (nmt.data.loader)
    columns: the kind of each column of the data

    Batches of the corpus's longest pairs are tried, each twice as large as the one before, as long as twice as much memory
    is there; the largest of the plan is the last. All ranks try the same, and find what the smallest of them holds.
    Raises ResourceError when not even one pair fits.
    """
    weights = list(objective.parameters())
    memory = Memory(weights[0].device)
    of_optimizer = OF_OPTIMIZER * sum(weight.numel() * weight.element_size() for weight in weights)
    memory.watch()
    before = memory.peak()
    room = world.minimum(int(PART * memory.free() / (1 if memory.on_gpu else world.local_size)) - of_optimizer)
    found = 0
    for tokens in _sizes(longest, largest):
        left = world.minimum(
            room
            - (
                _peak(objective, memory, dummy_batch(max(tokens // longest, 1), longest, longest, columns), precision)
                - before
            )
        )
        if left < 0:
            break
        found = tokens
        if left < room - left:  # twice as many would not fit
            break
    if not found:
        raise ResourceError(f"not even one pair of {longest:,} tokens fits into memory (give nmt prepare --max-length)")
    return found


def _sizes(longest: int, largest: int) -> Iterator[int]:
    """Tokens of the batches to try, upwards."""
    tokens = max(longest, FIRST_TOKENS)
    while tokens < largest:
        yield tokens
        tokens *= 2
    yield max(largest, longest)


def _peak(objective: nn.Module, memory: Memory, batch: Batch, precision: Precision) -> int:
    """The most memory that a gradient of this batch takes; more than any device has when it runs out."""
    memory.watch()
    try:
        with gradients_shared(objective, last=in_step(objective)):  # FSDP forgets those alone that it has shared out
            with autocast(memory.device, precision):
                loss = objective(batch.to(memory.device))
            sum_of_trained(loss).backward()
        return memory.peak()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        if in_step(objective):
            raise ResourceError(f"out of memory in a trial of {batch.cells:,} tokens (give --max-tokens)") from None
        return MORE_THAN_ANY
    finally:
        objective.zero_grad(set_to_none=True)
        release_memory()
