"""The size of batches (`--batch-tokens`): it decides speed and memory, and changes no result."""

from typing import Final

from torch import nn

from nmt.device import Memory
from nmt.models.base import Model, models_in

MAX_GPU_TOKENS: Final = 1 << 15
MAX_CPU_TOKENS: Final = 1 << 12
MAX_CPU_NUMBERS: Final = 1 << 20  # tokens times width; with more, a step no longer works in a CPU's caches
TYPICAL_SOURCE_TOKENS: Final = 24  # of the sentence whose search state is measured
EXTRA_TARGET_TOKENS: Final = 50  # of a hypothesis beyond its source, the default of --max-len-b
WORKING_BYTES_PER_UNIT: Final = 64  # of a token and unit of width: activations of the encoder and of a step
MIN_PATHS: Final = 4  # of a sentence that memory is reserved for: the encoder needs some too
FREE_MEMORY_SHARE: Final = 0.5


def auto_batch_tokens(scorer: nn.Module, memory: Memory, paths: int, replicas: int) -> int:
    """Source tokens of a batch, padding counted, a power of two.

    On a CPU 2^20 by the width of the model, at most 2^12 (measured in docs/measurements.md); on a GPU 2^15; less if half of
    the free memory would not hold all batches.
    paths: hypotheses of a sentence
    replicas: batches side by side
    """
    models = models_in(scorer)
    widest = max(model.width for model in models)
    fast = MAX_GPU_TOKENS if memory.on_gpu else min(MAX_CPU_TOKENS, MAX_CPU_NUMBERS // widest)
    bytes_per_token = max(MIN_PATHS, paths) * sum(map(bytes_per_path, models))
    fitting = int(FREE_MEMORY_SHARE * memory.free()) // (bytes_per_token * replicas)
    return int(2 ** (max(1, min(fast, fitting)).bit_length() - 1))


def bytes_per_path(model: Model) -> int:
    """Bytes of a source token for each hypothesis of its sentence: search state and activations."""
    state_bytes = model.state_bytes(TYPICAL_SOURCE_TOKENS, TYPICAL_SOURCE_TOKENS + EXTRA_TARGET_TOKENS)
    return state_bytes // TYPICAL_SOURCE_TOKENS + WORKING_BYTES_PER_UNIT * model.width
