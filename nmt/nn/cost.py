"""The cost of layers in floating-point operations (FLOPs), as torch.utils.flop_counter counts them.

A multiply-add counts 2. Matrix products count, those of attention among them; element-wise work does not.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from nmt.nn.matmul import using

FIRST: Final = 8  # lengths that are measured: this, and one and two strides more
STRIDE: Final = 8


def linear_flops(module: nn.Module) -> int:
    """Of all linear layers of a module, each at one position."""
    return sum(2 * layer.weight.numel() for layer in module.modules() if isinstance(layer, nn.Linear))


def _matrix_times_vector(matrix: Sequence[int], vector: Sequence[int], *_: Any, **__: Any) -> int:
    return 2 * prod(matrix)


def count_flops(call: Callable[[], object]) -> int:
    """FLOPs of what `call` does, counted while it does it.

    The counter sees operators, and not into fused attention and recurrent layers: those run as plain products here.
    """
    from torch.utils.flop_counter import FlopCounterMode  # slow to import, so only where something is counted

    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.mv: _matrix_times_vector})
    # Without gradients torch 2.13's counter fails where a layer returns a view of its weights.
    with sdpa_kernel(SDPBackend.MATH), using("torch"), _plain_recurrence(), torch.enable_grad(), counter:
        call()
    return int(counter.get_total_flops())


@contextlib.contextmanager
def _plain_recurrence() -> Iterator[None]:
    """torch's own GRU and LSTM without the libraries' kernels."""
    enabled = torch.backends.mkldnn.set_flags(False)[0]
    try:
        with torch.backends.cudnn.flags(enabled=False):
            yield
    finally:
        torch.backends.mkldnn.set_flags(enabled)


@dataclass(frozen=True)
class LengthCost:
    """FLOPs as a quadratic of source and target length, through six measured values.

    Exact for layers whose cost is linear in the lengths or in a product of two of them; near for others.
    """

    values: tuple[tuple[int, int, int], tuple[int, int], tuple[int]]  # [i][j]: source FIRST + i STRIDE, target + j

    @classmethod
    def measured(cls, cost: Callable[[int, int], int]) -> "LengthCost":
        """cost: FLOPs of a pair of these lengths."""
        x, y, z = (FIRST + i * STRIDE for i in range(3))
        return cls(((cost(x, x), cost(x, y), cost(x, z)), (cost(y, x), cost(y, y)), (cost(z, x),)))

    def __call__(self, source: Tensor, target: Tensor) -> Tensor:
        """source, target: (N,) int64 lengths; returns (N,) int64 FLOPs, by Newton's interpolation."""
        ((start, up, up2), (right, diagonal), (right2,)) = self.values
        s, t, k = source - FIRST, target - FIRST, STRIDE
        linear = k * (s * (right - start) + t * (up - start))
        squares = s * (s - k) * (right2 - 2 * right + start) + t * (t - k) * (up2 - 2 * up + start)
        mixed = s * t * (diagonal - right - up + start)
        return start + (2 * linear + squares + 2 * mixed) // (2 * k * k)
