"""Products with a matrix, by the fastest exact float32 path that is installed for this processor.

Torch multiplies float32 by the BLAS it was built with, or by oneDNN, which it takes for other types only; numpy has a
BLAS of its own. Which is fastest depends on the processor and on the shape - between none and twice - so it is measured.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

Matmul = Literal["torch", "onednn"]
# without gradients numpy's may be taken too, and for each shape another
InferenceMatmul = Literal["auto", "torch", "onednn", "numpy"]

WORTH: Final = 1.2  # times faster than torch's own that oneDNN has to be, so that noise does not decide
SAME: Final = 1e-5  # largest difference, relative to the largest number: more is another precision and not float32
SECONDS: Final = 0.5  # of a measurement before a training, and FEWEST rounds: others may be busy on the same cores
FEWEST: Final = 7
FEW: Final = 64  # rows: products of fewer are bound by memory, and torch's own
ROUNDS: Final = 3  # of a measurement before a translation, with so many ROWS
ROWS: Final = 128

_path: InferenceMatmul = "torch"
_quickest_of: dict[tuple[int, int, bool], InferenceMatmul] = {}  # by the shape of a weight, and whether there is a bias


def path() -> InferenceMatmul:
    """By which path float32 products on a CPU are computed now."""
    return _path


def use(wanted: InferenceMatmul) -> None:
    """Compute float32 products on a CPU by this path from now on; where gradients are wanted, auto and numpy are torch's."""
    global _path
    _path = wanted


@contextmanager
def using(wanted: InferenceMatmul) -> Iterator[None]:
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
    if _path == "torch" or not _may_choose(states):
        return linear(states, weight, bias)
    if _path == "onednn":
        found: Tensor = _Product.apply(states, weight, bias)  # type: ignore[no-untyped-call]
        return found
    if torch.is_grad_enabled() or states.numel() < FEW * states.shape[-1]:
        return linear(states, weight, bias)
    return _WAYS[_quickest_of.get(_shape(weight, bias), "torch") if _path == "auto" else _path](states, weight, bias)


def transpose_weights(model: nn.Module) -> None:
    """Store the weights of linear layers by input, not by output: a product of few rows then reads them in their order.

    The numbers and shapes stay; a weight that is an embedding's too is stored twice. Those that are trained stay as they are.
    """
    for layer in model.modules():
        if isinstance(layer, Linear) and not layer.weight.requires_grad:
            layer.weight = nn.Parameter(layer.weight.detach().t().contiguous().t(), requires_grad=False)


def settle(model: nn.Module) -> None:
    """Measure the path that multiplies with each shape of weight of a model in the least time, for those that it shall choose."""
    if _path != "auto":
        return
    for layer in model.modules():
        if isinstance(layer, Linear) and _shape(layer.weight, layer.bias) not in _quickest_of:
            with torch.no_grad():
                _quickest_of[_shape(layer.weight, layer.bias)] = _quickest(layer)


def _shape(weight: Tensor, bias: Tensor | None) -> tuple[int, int, bool]:
    return len(weight), weight.shape[1], bias is not None


def _quickest(layer: "Linear") -> InferenceMatmul:
    rows, seconds = torch.randn(ROWS, layer.in_features), dict.fromkeys(_WAYS, math.inf)
    own = linear(rows, layer.weight, layer.bias)
    for _ in range(ROUNDS):
        for name, way in _WAYS.items():
            began = time.perf_counter()
            found = way(rows, layer.weight, layer.bias)
            seconds[name] = min(seconds[name], time.perf_counter() - began)
            if float((found - own).abs().max()) > SAME * float(own.abs().max()):
                seconds[name] = math.inf  # it is no float32
    return min(_WAYS, key=lambda name: seconds[name])


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
    return _path == "onednn" and _may_choose(states)


def _may_choose(states: Tensor) -> bool:
    """Whether a product is of float32 on a CPU."""
    return states.dtype == torch.float32 and states.device.type == "cpu" and not torch.is_autocast_enabled("cpu")


def _onednn(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`product` by oneDNN, which knows no product of nothing, and packs a weight of any strides."""
    if not states.numel() or not weight.numel():
        return linear(states, weight, bias)
    found: Tensor = torch.ops.mkldnn._linear_pointwise(states.contiguous(), weight, bias, "none", [], "")
    return found


def _numpy(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`product` by numpy's BLAS, without gradient."""
    rows = states.reshape(-1, states.shape[-1])
    found = torch.empty(len(rows), len(weight))
    np.dot(rows.detach().numpy(), weight.detach().numpy().T, out=found.numpy())
    if bias is not None:
        found += bias
    return found.view(*states.shape[:-1], -1)


_WAYS: Final[dict[InferenceMatmul, Callable[[Tensor, Tensor, Tensor | None], Tensor]]] = {
    "torch": linear,
    "numpy": _numpy,
}
if available():
    _WAYS["onednn"] = _onednn


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

    def prepared(self) -> Callable[[Tensor], Tensor]:
        """`forward` of (N, D) without gradient, its weights looked up and its path chosen: a search has many small products."""
        weight, bias = self.weight.detach(), None if self.bias is None else self.bias.detach()
        if torch.is_autocast_enabled(weight.device.type):  # which would cast at each call
            dtype = torch.get_autocast_dtype(weight.device.type)
            weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
        transposed = weight.t()

        def by_torch(states: Tensor) -> Tensor:
            return torch.mm(states, transposed) if bias is None else torch.addmm(bias, states, transposed)

        chosen = _quickest_of.get(_shape(weight, bias), "torch") if _path == "auto" else _path
        if chosen == "torch" or not _may_choose(weight):
            return by_torch
        way = _WAYS[chosen]
        return lambda states: by_torch(states) if len(states) < FEW else way(states, weight, bias)

    def rows(self, rows: Tensor) -> "Linear":
        """A layer that computes only some outputs. rows: (E',) which"""
        return Linear.of(self.weight[rows], None if self.bias is None else self.bias[rows])

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None) -> "Linear":
        """A layer with these numbers, without gradient. weight: (E, D); bias: (E,) or None"""
        with torch.device("meta"):
            found = cls(weight.shape[1], len(weight), bias=bias is not None)
        found.weight = nn.Parameter(weight, requires_grad=False)
        if bias is not None:
            found.bias = nn.Parameter(bias, requires_grad=False)
        return found
