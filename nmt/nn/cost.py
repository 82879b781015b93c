"""The cost of layers in floating-point operations (FLOPs), counted as in torch.utils.flop_counter.

A multiply-add counts as 2. Only matrix products count, including those of attention. Element-wise operations do not.
"""

import contextlib
from collections.abc import Callable, Iterator
from math import prod
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from nmt.nn.matmul import Products, using

MIN_MEASURED_LENGTH: Final = 8  # the shortest of the three measured lengths
LENGTH_STRIDE: Final = 8  # distance between these lengths


def linear_flops(*modules: nn.Module | None) -> int:
    """The FLOPs of modules at one position. A module that is passed twice counts twice.

    This counts linear layers, and modules with a method `token_flops`, which returns their additional cost.
    """
    present = [module for module in modules if module is not None]
    layers = (layer for module in present for layer in module.modules() if isinstance(layer, nn.Linear))
    linear = sum(2 * layer.in_features * layer.out_features for layer in layers)
    others = (getattr(part, "token_flops", None) for module in present for part in module.modules())
    return int(linear + sum(flops() for flops in others if flops is not None))


def count_flops(call: Callable[[], object]) -> int:
    """Count the FLOPs of a call while it runs."""
    with counting_flops() as counter:
        call()
    return int(counter.get_total_flops())


@contextlib.contextmanager
def counting_flops() -> Iterator[Any]:
    """Context that counts FLOPs while it runs, and yields torch's counter.

    The counter cannot see inside fused attention and recurrent layers, so they run as plain products here.
    """
    from torch.utils.flop_counter import FlopCounterMode  # slow to import

    matrix_times_vector = {torch.ops.aten.mv: lambda matrix, *_, **__: 2 * prod(matrix)}
    counter = FlopCounterMode(display=False, custom_mapping=matrix_times_vector)
    # Without gradients, torch 2.13's counter fails if a layer returns a view of its weights.
    with sdpa_kernel(SDPBackend.MATH), using(Products()), _plain_recurrence(), torch.enable_grad(), counter:
        yield counter


@contextlib.contextmanager
def _plain_recurrence() -> Iterator[None]:
    """Context that runs torch's GRU and LSTM without the fused kernels of oneDNN and cuDNN."""
    enabled = torch.backends.mkldnn.set_flags(False)[0]
    try:
        with torch.backends.cudnn.flags(enabled=False):
            yield
    finally:
        torch.backends.mkldnn.set_flags(enabled)


def interpolated_cost(cost: Callable[[int, int], int]) -> Callable[[Tensor, Tensor], Tensor]:
    """Measure FLOPs for six pairs of lengths, and interpolate with a quadratic Newton polynomial.

    The result is exact if each layer's cost is linear in the lengths or in a product of two of them; otherwise it is approximate.

    cost: (source length, target length) -> FLOPs of a pair
    returns: a function of source and target lengths, (N,) int64 each -> FLOPs (N,) int64
    """
    x, y, z = (MIN_MEASURED_LENGTH + i * LENGTH_STRIDE for i in range(3))
    start, up, up2, right, diagonal, right2 = cost(x, x), cost(x, y), cost(x, z), cost(y, x), cost(y, y), cost(z, x)

    def interpolated(source: Tensor, target: Tensor) -> Tensor:
        s, t, k = source - MIN_MEASURED_LENGTH, target - MIN_MEASURED_LENGTH, LENGTH_STRIDE
        linear = k * (s * (right - start) + t * (up - start))
        squares = s * (s - k) * (right2 - 2 * right + start) + t * (t - k) * (up2 - 2 * up + start)
        mixed = s * t * (diagonal - right - up + start)
        return start + (2 * linear + squares + 2 * mixed) // (2 * k * k)

    return interpolated
