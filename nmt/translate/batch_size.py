"""The size of batches (`--batch-tokens`), which affects speed and memory but not the result."""

from typing import Final

from torch import nn

from nmt.device import Memory
from nmt.models.base import Model, models_in

MAX_GPU_TOKENS: Final = 1 << 15
MAX_CPU_TOKENS: Final = 1 << 12
MAX_CPU_NUMBERS: Final = 1 << 20  # maximum tokens times width on a CPU; larger steps do not fit its caches
TYPICAL_SOURCE_TOKENS: Final = 24  # length of the sentence for which the search state is measured
EXTRA_TARGET_TOKENS: Final = 50  # tokens of a hypothesis beyond its source length, the default of --max-len-b
WORKING_BYTES_PER_UNIT: Final = 64  # bytes of encoder and search-step activations, per token and unit of width
MIN_PATHS: Final = 4  # reserve memory for at least this many hypotheses per sentence, as the encoder needs memory too
FREE_MEMORY_SHARE: Final = 0.5


def auto_batch_tokens(scorer: nn.Module, memory: Memory, paths: int, replicas: int) -> int:
    """Choose the number of source tokens per batch, including padding. It is a power of two.

    On a CPU it is 2^20 divided by the model's width, at most 2^12 (measured in docs/measurements.md). On a GPU it is 2^15. It is
    smaller if all parallel batches together would need more than half of the free memory.

    paths: hypotheses per sentence
    replicas: batches in parallel
    """
    models = models_in(scorer)
    widest = max(model.width for model in models)
    fast = MAX_GPU_TOKENS if memory.on_gpu else min(MAX_CPU_TOKENS, MAX_CPU_NUMBERS // widest)
    bytes_per_token = max(MIN_PATHS, paths) * sum(map(bytes_per_path, models))
    fitting = int(FREE_MEMORY_SHARE * memory.free()) // (bytes_per_token * replicas)
    return int(2 ** (max(1, min(fast, fitting)).bit_length() - 1))


def bytes_per_path(model: Model) -> int:
    """Bytes of search state and activations per source token and hypothesis."""
    state_bytes = model.state_bytes(TYPICAL_SOURCE_TOKENS, TYPICAL_SOURCE_TOKENS + EXTRA_TARGET_TOKENS)
    return state_bytes // TYPICAL_SOURCE_TOKENS + WORKING_BYTES_PER_UNIT * model.width
