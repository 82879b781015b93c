"""What is tried before the first update: products of the model's size, and how large a micro-batch the device holds."""

from collections.abc import Iterator

import torch
from torch import nn

from nmt.batch import Batch
from nmt.data.loader import Loader
from nmt.device import Memory, Precision, autocast
from nmt.dist import World
from nmt.errors import ResourceError, is_out_of_memory
from nmt.symbols import BOS, EOS, UNK
from nmt.train.parallel import gradients_shared
from nmt.train.update import on_device

FIRST_TOKENS = 512  # of the smallest micro-batch that is tried
PART = 0.8  # of the free memory that training may take
ROWS = 1024  # of the products that are measured
OF_OPTIMIZER = 2  # numbers that it keeps for each weight, from the first update on


def products(model: nn.Module) -> tuple[int, int, int]:
    """(rows, inputs, outputs) of the kind of product that the model's layers make most of."""
    outputs, inputs = max((weight.shape for weight in model.parameters() if weight.ndim == 2), key=min)
    return ROWS, inputs, min(outputs, 4 * inputs)


def find_max_tokens(objective: nn.Module, loader: Loader, precision: Precision, world: World) -> int:
    """Tokens of the largest micro-batch that the plan asks for, padding counted, or fewer if the device holds fewer.

    Batches of the corpus's longest pairs are tried, each twice as large as the one before, as long as twice as much memory
    is there; the largest of the plan is the last.
    Raises ResourceError when not even one pair fits.
    """
    weights = list(objective.parameters())
    memory = Memory(weights[0].device)
    bytes_of_weights = sum(weight.numel() * weight.element_size() for weight in weights)
    share = PART / (1 if memory.on_gpu else world.local_size)
    memory.watch()
    before = memory.peak()
    most = before + share * memory.free() - OF_OPTIMIZER * bytes_of_weights
    longest, found = loader.longest(), 0
    for tokens in _sizes(longest, loader.largest_micro_batch()):
        peak = _peak(objective, memory, Batch(*_filled(max(tokens // longest, 1), longest)), precision)
        peak = max(int(told) for told in world.gather(str(peak).encode()))
        if peak > most:
            break
        found = tokens
        if peak + (peak - before) > most:  # twice as many would not fit
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


def _filled(rows: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Source and target of pairs that are all of this length, EOS counted."""
    words = torch.full((rows, length - 1), UNK)
    source = nn.functional.pad(words, (0, 1), value=EOS)
    return source, nn.functional.pad(source, (1, 0), value=BOS)


def _peak(objective: nn.Module, memory: Memory, batch: Batch, precision: Precision) -> int:
    """The most memory that a gradient of this batch takes; more than any device has when it runs out."""
    memory.watch()
    try:
        with gradients_shared(objective, last=False):
            with autocast(memory.device, precision):
                total, _ = objective(on_device(memory.device, batch))
            total.backward()
        return memory.peak()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return 1 << 62
    finally:
        objective.zero_grad(set_to_none=True)
