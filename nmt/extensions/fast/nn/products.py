"""Faster matrix products on a CPU: float32 with torch's BLAS, oneDNN or numpy's BLAS, and 16-bit products with oneDNN.

torch multiplies float32 with the BLAS it was built with, and uses oneDNN only for other types. One implementation can
be twice as fast as another. Which one is fastest depends on the processor and the shape, so it is measured.
Dimensions: N rows, M of them after padding, D inputs, E outputs.
"""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from statistics import median
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from nmt.nn.linear import Linear
from nmt.nn.matmul import Products, is_cast, product, using

Matmul = Literal["torch", "onednn"]
# Without gradients, numpy can be used too, and `auto` selects the implementation that was measured as fastest for each shape.
InferenceMatmul = Literal["auto", "torch", "onednn", "numpy"]
Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
ContextFactory = Callable[[], AbstractContextManager[object]]

MIN_SPEEDUP: Final = 1.2  # oneDNN is used only if it is this many times as fast as torch; measurements are noisy
MAX_RELATIVE_DIFFERENCE: Final = (
    1e-5  # relative to the largest value; a larger difference means a precision below float32
)
TRAINING_MEASUREMENT_SECONDS: Final = 0.5
MIN_TRAINING_ROUNDS: Final = 7  # several rounds, because other processes may use the same cores
INFERENCE_ROUNDS: Final = 3
INFERENCE_ROWS: Final = 128  # number of rows in a measured product
ROW_MULTIPLE: Final = 64  # rows of 16-bit products on a CPU are padded to a multiple of this unless there are fewer
MIN_ROWS: Final = 64  # with fewer rows, memory limits the speed, and torch computes the product

_fastest: dict[tuple[int, int, bool], InferenceMatmul] = {}  # key: shape of the weight, and whether there is a bias


def onednn_available() -> bool:
    """Whether this build of torch can multiply float32 with oneDNN."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class FastProducts(Products):
    """Products with a chosen implementation. With gradients, `auto` and `numpy` use torch. 16-bit products are padded."""

    def __init__(self, implementation: InferenceMatmul) -> None:
        self.implementation = implementation

    def product(self, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """See `nmt.nn.matmul.product`."""
        output: Tensor
        if is_cast(states) and torch.compiler.is_compiling():
            output = linear(states, weight, bias).float()
        elif is_cast(states):
            dtype = torch.get_autocast_dtype("cpu")
            output = _CastProduct.apply(states, weight, bias, dtype)  # type: ignore[no-untyped-call]
        elif self.implementation == "torch" or not _has_choice(states):
            output = linear(states, weight, bias)
        elif self.implementation == "onednn":
            output = _OnednnProduct.apply(states, weight, bias)  # type: ignore[no-untyped-call]
        elif torch.is_grad_enabled() or states.numel() < MIN_ROWS * states.shape[-1]:
            output = linear(states, weight, bias)
        else:
            output = _IMPLEMENTATIONS[self._chosen(weight, bias)](states, weight, bias)
        return output

    def fixed_product(self, weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
        """See `nmt.nn.matmul.fixed_product`."""
        by_torch, chosen = super().fixed_product(weight, bias), self._chosen(weight, bias)
        if chosen == "torch" or not _has_choice(weight):
            return by_torch
        implementation = _IMPLEMENTATIONS[chosen]
        return lambda states: by_torch(states) if len(states) < MIN_ROWS else implementation(states, weight, bias)

    def _chosen(self, weight: Tensor, bias: Tensor | None) -> InferenceMatmul:
        return _fastest.get(_shape(weight, bias), "torch") if self.implementation == "auto" else self.implementation


def _has_choice(states: Tensor) -> bool:
    """Whether a product has several implementations, as float32 products on a CPU do."""
    return states.dtype == torch.float32 and states.device.type == "cpu" and not torch.is_autocast_enabled("cpu")


def _rounded(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Round rows (N, D) to a 16-bit type. If N >= ROW_MULTIPLE, pad them with zeros to a multiple of it: (M, D).

    oneDNN generates code for each new shape, which takes longer than the product itself.
    """
    count = len(rows)
    padding = -count % ROW_MULTIPLE if count >= ROW_MULTIPLE else 0
    rounded = rows.new_empty(count + padding, rows.shape[1], dtype=dtype)
    rounded[:count].copy_(rows)
    rounded[count:].zero_()
    return rounded


def _float32_of(rows: Tensor, shape: torch.Size) -> Tensor:
    """Convert the first rows of a padded product (M, E) to float32: (..., E). shape: (..., D), shape of the states"""
    # The result must not be a view of the product, because the gates of LSTMs are masked in place.
    output = rows.new_empty(*shape[:-1], rows.shape[1], dtype=torch.float32)
    output.view(-1, rows.shape[1]).copy_(rows[: shape[:-1].numel()])
    return output


class _CastProduct(torch.autograd.Function):
    """The product of factors that are rounded to `dtype`. The gradient is computed the same way; results are float32."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
        rows, weight = _rounded(states.reshape(-1, states.shape[-1]), dtype), weight.to(dtype)
        ctx.save_for_backward(rows, weight)
        return _float32_of(linear(rows, weight, None if bias is None else bias.to(dtype)), states.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = ctx.saved_tensors
        of_rows, needed = gradient.reshape(-1, gradient.shape[-1]), ctx.needs_input_grad  # N E
        of_states = of_weight = None
        if needed[0] or needed[1]:
            rows = _rounded(of_rows, weight.dtype)  # M E
        if needed[0]:
            of_states = _float32_of(rows @ weight, gradient.shape)
        if needed[1]:
            of_weight = (rows.t() @ states).float()
        return of_states, of_weight, of_rows.sum(0) if needed[2] else None, None


# Implementations: states (..., D), weight (E, D), bias (E,) or None -> (..., E)


def _onednn(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply with oneDNN, which cannot multiply empty tensors and accepts weights with any strides."""
    if not states.numel() or not weight.numel():
        return linear(states, weight, bias)
    output: Tensor = torch.ops.mkldnn._linear_pointwise(states.contiguous(), weight, bias, "none", [], "")
    return output


def _numpy(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply with numpy's BLAS, without gradients."""
    rows = states.reshape(-1, states.shape[-1])  # N D
    output = torch.empty(len(rows), len(weight))
    np.dot(rows.detach().numpy(), weight.detach().numpy().T, out=output.numpy())
    if bias is not None:
        output += bias
    return output.view(*states.shape[:-1], -1)


_IMPLEMENTATIONS: Final[dict[InferenceMatmul, Product]] = {"torch": linear, "numpy": _numpy}
if onednn_available():
    _IMPLEMENTATIONS["onednn"] = _onednn


def _onednn_of_rows(left: Tensor, right: Tensor) -> Tensor:
    """Multiply the transpose of left (N, E) by right (N, D) with oneDNN: (E, D)."""
    # oneDNN needs its first factor transposed, which is slow in torch. So transpose either `left`, or `right` and the product,
    # whichever is smaller.
    if left.numel() <= right.numel() + left.shape[1] * right.shape[1]:
        return _onednn(left.t(), right.t(), None)
    return _onednn(right.t(), left.t(), None).t().contiguous()


class _OnednnProduct(torch.autograd.Function):
    """The product and its gradient, both computed with oneDNN."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(states, weight)
        product = _onednn(
            states.reshape(-1, states.shape[-1]), weight, bias
        )  # a plain reshape to (T, B, E) would be a view, which must not be modified
        return torch.ops.aten._unsafe_view(product, [*states.shape[:-1], len(weight)])  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = ctx.saved_tensors
        rows, flat = gradient.reshape(-1, gradient.shape[-1]), states.reshape(-1, states.shape[-1])  # N E, N D
        needed = ctx.needs_input_grad
        of_states = _onednn(rows, weight.t(), None).view_as(states) if needed[0] else None
        of_weight = _onednn_of_rows(rows, flat) if needed[1] else None
        return of_states, of_weight, rows.sum(0) if needed[2] else None


# Measurements


def measured(rows: int, inputs: int, outputs: int) -> tuple[Matmul, float]:
    """Measure which implementation of (rows, inputs) x (inputs, outputs) is faster with gradients, and oneDNN's speedup.

    The number of rows differs in each round, as in micro-batches, because oneDNN generates code for each shape.
    """
    if not onednn_available():
        return "torch", 0.0
    states, weight = torch.randn(rows, inputs, requires_grad=True), torch.randn(outputs, inputs, requires_grad=True)
    with torch.no_grad():
        if not _is_float32(_onednn(states, weight, None), linear(states, weight)):
            return "torch", 0.0

    speedup = _speedup(states, weight, partial(using, FastProducts("torch")), partial(using, FastProducts("onednn")))
    return ("onednn" if speedup >= MIN_SPEEDUP else "torch"), speedup


def speedup_of_type(dtype: torch.dtype, rows: int, inputs: int, outputs: int) -> float:
    """The speedup of products in this type over products in float32 on a CPU, including gradients."""
    states, weight = torch.randn(rows, inputs, requires_grad=True), torch.randn(outputs, inputs, requires_grad=True)
    cast = partial(torch.autocast, "cpu", dtype)
    with using(FastProducts("torch")):
        return _speedup(states, weight, partial(cast, enabled=False), cast)


def _speedup(states: Tensor, weight: Tensor, baseline: ContextFactory, other: ContextFactory) -> float:
    """The ratio of the times that `product` and its gradient take in two contexts, as the median over alternating rounds.

    states: (N, D), of which each round uses a different number of rows; weight: (E, D)
    baseline, other: functions that return the context manager for a round
    """

    def seconds(new_context: ContextFactory, number: int) -> float:
        start = time.perf_counter()
        with new_context():
            with torch.enable_grad():
                output = product(states[: len(states) - number % (len(states) // 2)], weight)
            torch.autograd.grad(output, (states, weight), output)
        return time.perf_counter() - start

    ratios: list[float] = []
    end = time.perf_counter() + TRAINING_MEASUREMENT_SECONDS
    while len(ratios) < MIN_TRAINING_ROUNDS or time.perf_counter() < end:
        ratios.append(seconds(baseline, len(ratios)) / seconds(other, len(ratios)))
    return median(ratios)


def choose_matmul(weight: Tensor, bias: Tensor | None) -> None:
    """For `auto`, measure once which implementation is fastest for a weight's shape. weight: (E, D); bias: (E,) or None"""
    if _shape(weight, bias) in _fastest:
        return
    states, seconds = torch.randn(INFERENCE_ROWS, weight.shape[1]), dict.fromkeys(_IMPLEMENTATIONS, math.inf)
    with torch.no_grad():
        expected = linear(states, weight, bias)
        for _ in range(INFERENCE_ROUNDS):
            for name, implementation in _IMPLEMENTATIONS.items():
                start = time.perf_counter()
                output = implementation(states, weight, bias)
                seconds[name] = min(seconds[name], time.perf_counter() - start)
                if not _is_float32(output, expected):
                    seconds[name] = math.inf
    _fastest[_shape(weight, bias)] = min(_IMPLEMENTATIONS, key=lambda name: seconds[name])


def choose_matmuls(model: nn.Module) -> None:
    """Measure which implementation is fastest for each shape of the weights in a model's linear layers."""
    for layer in model.modules():
        if isinstance(layer, Linear):
            choose_matmul(layer.weight, layer.bias)


def transpose_weights(model: nn.Module) -> None:
    """Store the weights of linear layers by input instead of by output, so that products with few rows read memory in order.

    Values and shapes do not change. A weight that is tied to an embedding is stored twice. A model that has trainable
    parameters stays unchanged.
    """
    if any(parameter.requires_grad for parameter in model.parameters()):
        return
    for layer in model.modules():
        if isinstance(layer, Linear):
            layer.weight = nn.Parameter(layer.weight.detach().t().contiguous().t(), requires_grad=False)


def _shape(weight: Tensor, bias: Tensor | None) -> tuple[int, int, bool]:
    return len(weight), weight.shape[1], bias is not None


def _is_float32(output: Tensor, expected: Tensor) -> bool:
    """Whether a product is as precise as torch's float32 product."""
    return float((output - expected).abs().max()) <= MAX_RELATIVE_DIFFERENCE * float(expected.abs().max())
