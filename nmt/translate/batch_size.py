"""How many source tokens a batch has where nobody says it (`--batch-tokens auto`). It decides speed and memory, no result."""

import math
from typing import Final

from torch import nn

from nmt.device import Memory
from nmt.models.base import Model

MOST_ON_GPU: Final = 1 << 15  # tokens
MOST_ON_CPU: Final = 1 << 12
NUMBERS_CACHED: Final = 1 << 20  # tokens times width: beyond it a CPU's caches no longer hold what a step works on
TYPICAL_SOURCE_TOKENS: Final = 24  # of a sentence whose search state is asked for
EXTRA_TARGET_TOKENS: Final = 50  # that a hypothesis may have more than its source, the default of --max-len-b
WORKING_BYTES_PER_UNIT: Final = 64  # of a token and unit of width: what encoder and step compute with beside the state
MIN_PATHS: Final = 4  # that there is memory for in any case: the encoder needs some too
SHARE: Final = 0.5  # of the free memory that may be taken
LEAST_PART: Final = 4  # no batch is made smaller, to share a text out, than this part of what it may be


def batch_tokens(scorer: nn.Module, memory: Memory, paths: int, replicas: int) -> int:
    """Source tokens of a batch, padding counted, a power of two.

    On a CPU 2^20 by the width of the model, at most 2^12 (docs/translate.md has the measurements); on a GPU 2^15. Less
    where so many batches side by side, each sentence with so many hypotheses (paths), do not fit into half of the free memory.
    """
    models = [module for module in scorer.modules() if isinstance(module, Model)]
    fast = MOST_ON_GPU if memory.on_gpu else min(MOST_ON_CPU, NUMBERS_CACHED // max(model.width for model in models))
    bytes_per_token = max(MIN_PATHS, paths) * sum(map(bytes_per_path, models))
    fitting = int(SHARE * memory.free()) // (bytes_per_token * replicas)
    return int(2 ** (max(1, min(fast, fitting)).bit_length() - 1))


def bytes_per_path(model: Model) -> int:
    """Bytes that a source token takes for each hypothesis of its sentence: of search state, and to compute with."""
    state_bytes = model.state_bytes(TYPICAL_SOURCE_TOKENS, TYPICAL_SOURCE_TOKENS + EXTRA_TARGET_TOKENS)
    return state_bytes // TYPICAL_SOURCE_TOKENS + WORKING_BYTES_PER_UNIT * model.width


def batch_tokens_of(tokens: int, most: int, replicas: int) -> int:
    """Source tokens of a batch, where a text of so many is shared out: the same for all, and as many batches for each
    replica, where that makes none too small.

    most: of a batch
    """
    batches = replicas * max(1, math.ceil(tokens / (replicas * most)))
    return most if replicas == 1 else max(math.ceil(tokens / batches), most // LEAST_PART, 1)
