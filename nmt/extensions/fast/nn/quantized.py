"""Linear layers with 8-bit weights, for faster translation on CPUs. The weights need a quarter of the memory.

The weights of each output share a fixed scale. Each input row gets its own scale when it is multiplied, so the result for a
sentence does not depend on the rest of the batch. Sums are 32-bit integers.
A layer with few weights multiplies its rounded weights in float32, because rounding its input would not save time.
"""

import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import torch
from torch import Tensor, nn

from nmt.extensions.fast.nn.instructions import has_vnni
from nmt.nn.linear import Linear, Projection, remove_weight_norm

MIN_INT8_WEIGHTS: Final = 2**18  # layers with fewer weights are faster in float32 (docs/measurements.md)
MAX_INT8: Final = 127  # largest rounded weight, and largest rounded input if the CPU sums pairs of products in 32 bits
MAX_INPUT_16_BIT_SUMS: Final = 63  # largest rounded input if the CPU sums such pairs in 16 bits, to avoid overflow
TINY: Final = torch.finfo(torch.float32).tiny

Rounding = Callable[[Tensor], tuple[Tensor, Tensor]]


def rounded(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Round a matrix (E, D) to int8. Returns the integers (E, D) and the scale of each row, (E,) float32."""
    scale = matrix.abs().amax(1).clamp(min=TINY) / MAX_INT8
    return torch.round(matrix / scale[:, None]).to(torch.int8), scale


def empty_rounded(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Uninitialized tensors with the shapes of `rounded(matrix)`, for loading stored values."""
    return torch.empty(matrix.shape, dtype=torch.int8), torch.empty(len(matrix))


class Int8Linear(nn.Module):
    """A linear layer with 8-bit weights: states (..., D) -> (..., E).

    weight: (E, D) int8; scale: (E,) float32; bias: (E,) or None
    int8_products: whether to multiply in 8 bits too; if None, this depends on the number of weights
    """

    bias: Tensor | None

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None, int8_products: bool | None = None) -> None:
        super().__init__()
        self.int8_products = weight.numel() >= MIN_INT8_WEIGHTS if int8_products is None else int8_products
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.scale = nn.Parameter(scale, requires_grad=False)
        self.register_buffer("bias", bias)
        self.max_input = MAX_INT8 if has_vnni() else MAX_INPUT_16_BIT_SUMS

    @classmethod
    def of(cls, linear: nn.Linear, rounding: Rounding = rounded) -> "Int8Linear":
        return cls(*rounding(linear.weight.detach()), None if linear.bias is None else linear.bias.detach())

    @cached_property
    def _packed(self) -> Any:
        """The weights in torch's layout. They are packed at first use, because the layers exist before the weights are loaded."""
        # torch warns that quantized tensors are deprecated, but there is no other way to pack weights yet
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            zeros = torch.zeros(len(self.scale), dtype=torch.int64)
            quantized = torch._make_per_channel_quantized_tensor(self.weight, self.scale.double(), zeros, 0)
            return torch.ops.quantized.linear_prepack(quantized, None)

    @cached_property
    def _widened(self) -> Linear:
        """The layer with its rounded weights in float32."""
        transposed = self.weight.t() * self.scale  # D E, the order in which products with few rows read it
        return Linear.of(transposed.t(), self.bias)

    def ready(self) -> None:
        """Convert the weights now instead of at first use, so that processes that are forked later share them."""
        _ = self._packed if self.int8_products else self._widened

    def rows(self, rows: Tensor) -> "Int8Linear":
        """A layer that computes only some of the outputs of this layer. rows: (E',) indices of these outputs"""
        bias = None if self.bias is None else self.bias[rows]
        return Int8Linear(self.weight[rows], self.scale[rows], bias, self.int8_products)

    def search_step(self) -> Projection:
        return self.forward if self.int8_products else self._widened.search_step()

    def forward(self, states: Tensor) -> Tensor:
        if not self.int8_products:
            widened: Tensor = self._widened(states)
            return widened
        flat = states.reshape(-1, states.shape[-1])
        largest = torch.maximum(flat.amax(1, keepdim=True), -flat.amin(1, keepdim=True)).add_(TINY)
        output: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            flat / largest, 1 / self.max_input, self.max_input + 1, self._packed
        )
        output = output.mul_(largest) if self.bias is None else torch.addcmul(self.bias, output, largest)
        return output.view(*states.shape[:-1], output.shape[-1])


def int8_available() -> bool:
    """Whether this build of torch supports 8-bit products."""
    names = "linear_prepack", "linear_with_input_q_dq_qweight_dq_output_fp32"
    return hasattr(torch, "_make_per_channel_quantized_tensor") and all(
        hasattr(torch.ops.quantized, name) for name in names
    )


class Int8Embedding(nn.Module):
    """An embedding with 8-bit weights: ids (...) -> vectors (..., D) float32. weight: (V, D) int8; scale: (V,) float32"""

    def __init__(self, weight: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.scale = nn.Parameter(scale, requires_grad=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.weight[ids] * self.scale[ids].unsqueeze(-1)


def quantize(model: nn.Module, rounding: Rounding = rounded) -> None:
    """Replace every linear layer and embedding of a model with an 8-bit version. Tied weights stay tied."""
    remove_weight_norm(model)
    replacements: dict[int, Int8Linear | Int8Embedding] = {}
    for path, module in list(model.named_modules(remove_duplicate=False)):
        replacement: Int8Linear | Int8Embedding
        if isinstance(module, nn.Linear):
            replacement = Int8Linear.of(module, rounding)
        elif isinstance(module, nn.Embedding):
            replacement = Int8Embedding(*rounding(module.weight.detach()))
        else:
            continue
        tied = replacements.setdefault(id(module.weight), replacement)
        replacement.weight, replacement.scale = tied.weight, tied.scale
        model.set_submodule(path, replacement)
