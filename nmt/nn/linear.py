"""Products with a matrix, by the fastest exact float32 path that the installed torch has on this processor.

Torch multiplies float32 by the BLAS it was built with, or by oneDNN, which it takes for other types only. Which of the
two is faster depends on the processor - nothing on one with AVX2, twice on one with AVX-512 - so it is measured.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

Matmul = Literal["torch", "onednn"]

WORTH: Final = 1.2  # times faster than torch's own that oneDNN has to be, so that noise does not decide
SAME: Final = 1e-5  # largest difference, relative to the largest number: more is another precision and not float32
SECONDS: Final = 0.5  # of a measurement before a training, and FEWEST rounds: others may be busy on the same cores
FEWEST: Final = 7

_path: Matmul = "torch"


def path() -> Matmul:
    """By which path float32 products on a CPU are computed now."""
    return _path


def use(wanted: Matmul) -> None:
    """Compute float32 products on a CPU by this path from now on."""
    global _path
    _path = wanted


@contextmanager
def using(wanted: Matmul) -> Iterator[None]:
    """Compute float32 products on a CPU by this path for the moment."""
    before = path()
    use(wanted)
    try:
        yield
    finally:
        use(before)


def available() -> bool:
    """Whether oneDNN's path can be called in this torch."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def measured(
    rows: int, inputs: int, outputs: int, gradients: bool = True, seconds: float = SECONDS
) -> tuple[Matmul, float]:
    """The path to take for (rows, inputs) x (inputs, outputs), and how many times faster than torch's own oneDNN is.

    Each time with other rows, as micro-batches have: oneDNN makes code for each shape that it meets.
    gradients: whether they are computed too; seconds: that the measurement takes
    """
    if not available():
        return "torch", 0.0
    states, weight = torch.randn(rows, inputs, requires_grad=True), torch.randn(outputs, inputs, requires_grad=True)
    with torch.no_grad():
        own, other = linear(states, weight), _onednn(states, weight, None)
        if float((own - other).abs().max()) > SAME * float(own.abs().max()):
            return "torch", 0.0

    def multiply(path: Matmul, number: int) -> None:
        with using(path), torch.set_grad_enabled(gradients):
            output = product(states[: rows - number % (rows // 2)], weight)
        if gradients:
            torch.autograd.grad(output, (states, weight), output)

    ratio = _times_faster(lambda number: multiply("torch", number), lambda number: multiply("onednn", number), seconds)
    return ("onednn" if ratio >= WORTH else "torch"), ratio


def speed_of(dtype: torch.dtype, rows: int, inputs: int, outputs: int) -> float:
    """How many times faster a CPU multiplies numbers of this type than float32."""
    states, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    cast_states, cast_weight = states.to(dtype), weight.to(dtype)
    return _times_faster(lambda number: linear(states, weight), lambda number: linear(cast_states, cast_weight))


def _times_faster(own: Callable[[int], object], other: Callable[[int], object], seconds: float = SECONDS) -> float:
    """How many times faster `other` is: the median of many rounds, whose number both are given, one after the other."""
    ratios: list[float] = []
    end = time.perf_counter() + seconds
    while len(ratios) < FEWEST or time.perf_counter() < end:
        began = time.perf_counter()
        own(len(ratios))
        between = time.perf_counter()
        other(len(ratios))
        ratios.append((between - began) / (time.perf_counter() - between))
    return median(ratios)


def product(states: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """states (..., D) times weight (E, D) transposed, plus bias (E,): (..., E)."""
    if not _by_onednn(states):
        return linear(states, weight, bias)
    found: Tensor = _Product.apply(states, weight, bias)  # type: ignore[no-untyped-call]
    return found


def add_product(sums: Tensor, left: Tensor, right: Tensor) -> None:
    """sums (E, D) += left (N, E) transposed times right (N, D), without gradient."""
    if torch.is_autocast_enabled(sums.device.type):
        sums += left.t() @ right
    elif _by_onednn(right):
        sums += _onednn_of_rows(left, right)
    else:
        sums.addmm_(left.t(), right)


def product_back(gradient: Tensor, weight: Tensor) -> Tensor:
    """gradient (N, E) times weight (E, D), without gradient: (N, D)."""
    return _onednn(gradient, weight.t(), None) if _by_onednn(gradient) else gradient @ weight


def _by_onednn(states: Tensor) -> bool:
    on_cpu = states.device.type == "cpu" and states.dtype == torch.float32
    return _path == "onednn" and on_cpu and not torch.is_autocast_enabled("cpu")


def _onednn(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`product` by oneDNN, which knows no product of nothing, and packs a weight of any strides."""
    if not states.numel() or not weight.numel():
        return linear(states, weight, bias)
    found: Tensor = torch.ops.mkldnn._linear_pointwise(states.contiguous(), weight, bias, "none", [], "")
    return found


def _onednn_of_rows(left: Tensor, right: Tensor) -> Tensor:
    """left (N, E) transposed times right (N, D) by oneDNN: (E, D).

    Its first factor has to be transposed for it, which torch is slow at: `left`, or `right` and the product, the smaller.
    """
    if left.numel() <= right.numel() + left.shape[1] * right.shape[1]:
        return _onednn(left.t(), right.t(), None)
    return _onednn(right.t(), left.t(), None).t().contiguous()


class _Product(torch.autograd.Function):
    """The product by oneDNN, and its gradient likewise."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(states, weight)
        return _onednn(states, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = ctx.saved_tensors
        rows, flat = gradient.reshape(-1, gradient.shape[-1]), states.reshape(-1, states.shape[-1])
        wanted = ctx.needs_input_grad
        of_states = _onednn(rows, weight.t(), None).view_as(states) if wanted[0] else None
        of_weight = _onednn_of_rows(rows, flat) if wanted[1] else None
        return of_states, of_weight, rows.sum(0) if wanted[2] else None


class Linear(nn.Linear):
    """nn.Linear by the path that is in use: the same weights and names, states (..., D) -> (..., E)."""

    def forward(self, states: Tensor) -> Tensor:
        return product(states, self.weight, self.bias)

    def rows(self, rows: Tensor) -> "Linear":
        """A layer that computes only some outputs. rows: (E',) which"""
        with torch.device("meta"):
            found = Linear(self.in_features, len(rows), bias=self.bias is not None)
        found.weight = nn.Parameter(self.weight[rows], requires_grad=False)
        if self.bias is not None:
            found.bias = nn.Parameter(self.bias[rows], requires_grad=False)
        return found
