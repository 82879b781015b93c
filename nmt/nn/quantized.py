"""Linear layers with weights of 8 bits, for translating on CPUs: a quarter of the memory, and faster products.

Each output has a scale for its weights, fixed; each row of the input has one for its numbers, found when it comes. So a
sentence is computed as it would be alone, whatever stands beside it in a batch. Sums are whole numbers of 32 bits.
A layer of few weights multiplies in float32, with what 8 bits have left of them: rounding its input would gain no time.
"""

import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import torch
from torch import Tensor, nn

from nmt.nn.linear import Linear

SMALL: Final = 2**18  # weights of a layer from which products in 8 bits are the quicker ones (docs/performance.md)
MOST: Final = 127  # of a weight; and of an input, where the processor sums pairs of products in 32 bits
TINY: Final = torch.finfo(torch.float32).tiny
HALF: Final = 63  # of an input where it sums them in 16 bits, which more would overflow

Rounding = Callable[[Tensor], tuple[Tensor, Tensor]]


def rounded(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix (E, D) as whole numbers (E, D) int8 and the scale of each row, (E,) float32."""
    scale = matrix.abs().amax(1).clamp(min=TINY) / MOST
    return torch.round(matrix / scale[:, None]).to(torch.int8), scale


def room(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Room for what `rounded` gives of a matrix, when that is to come from elsewhere."""
    return torch.empty(matrix.shape, dtype=torch.int8), torch.empty(len(matrix))


class Int8Linear(nn.Module):
    """A linear layer, states (..., D) -> (..., E). weight: (E, D) int8; scale: (E,) float32; bias: (E,) or None

    in_bytes: whether it multiplies in 8 bits too; None: if there are enough weights for it
    """

    bias: Tensor | None

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None, in_bytes: bool | None = None) -> None:
        super().__init__()
        self.in_bytes = weight.numel() >= SMALL if in_bytes is None else in_bytes
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.scale = nn.Parameter(scale, requires_grad=False)
        self.register_buffer("bias", bias)
        self.most = MOST if _sums_in_32_bits() else HALF

    @classmethod
    def of(cls, linear: nn.Linear, rounding: Rounding = rounded) -> "Int8Linear":
        """A layer's weights, rounded."""
        return cls(*rounding(linear.weight.detach()), None if linear.bias is None else linear.bias.detach())

    @cached_property
    def _packed(self) -> Any:
        """Made when it is first used: the weights of a model that is being loaded come after its layers."""
        return _packed(self.weight, self.scale)

    @cached_property
    def _widened(self) -> Linear:
        """The same in float32."""
        transposed = self.weight.t() * self.scale  # D E, as a product of few rows reads them
        return Linear.of(transposed.t(), self.bias)

    def ready(self) -> None:
        """Make now what is made at first use: processes that are forked after it share it."""
        _ = self._packed if self.in_bytes else self._widened

    def rows(self, rows: Tensor) -> "Int8Linear":
        """A layer that computes only some outputs, each as this one does. rows: (E',) which"""
        bias = None if self.bias is None else self.bias[rows]
        return Int8Linear(self.weight[rows], self.scale[rows], bias, self.in_bytes)

    def prepared(self) -> Callable[[Tensor], Tensor]:
        """See Linear."""
        return self.forward if self.in_bytes else self._widened.prepared()

    def forward(self, states: Tensor) -> Tensor:
        """See Int8Linear."""
        if not self.in_bytes:
            widened: Tensor = self._widened(states)
            return widened
        flat = states.reshape(-1, states.shape[-1])
        largest = torch.maximum(flat.amax(1, keepdim=True), -flat.amin(1, keepdim=True)).add_(TINY)
        found: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            flat / largest, 1 / self.most, self.most + 1, self._packed
        )
        found = found.mul_(largest) if self.bias is None else torch.addcmul(self.bias, found, largest)
        return found.view(*states.shape[:-1], -1)


def available() -> bool:
    """Whether this torch can multiply so."""
    wanted = "linear_prepack", "linear_with_input_q_dq_qweight_dq_output_fp32"
    return hasattr(torch, "_make_per_channel_quantized_tensor") and all(
        hasattr(torch.ops.quantized, name) for name in wanted
    )


def _packed(weight: Tensor, scale: Tensor) -> Any:
    """Weights as torch's 8-bit products want them. Tensors of that type are announced to go; there is no other way in yet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        zeros = torch.zeros(len(scale), dtype=torch.int64)
        made = torch._make_per_channel_quantized_tensor(weight, scale.double(), zeros, 0)
        return torch.ops.quantized.linear_prepack(made, None)


def _sums_in_32_bits() -> bool:
    """Whether the processor multiplies bytes without sums of 16 bits between (VNNI), and torch can tell."""
    return bool(getattr(torch.cpu, "_is_vnni_supported", lambda: False)())


class Int8Embedding(nn.Module):
    """A table of words, ids (...) -> vectors (..., D) float32. weight: (V, D) int8; scale: (V,) float32"""

    def __init__(self, weight: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.scale = nn.Parameter(scale, requires_grad=False)

    @classmethod
    def of(cls, table: nn.Embedding, rounding: Rounding = rounded) -> "Int8Embedding":
        """A table's vectors, rounded."""
        return cls(*rounding(table.weight.detach()))

    def forward(self, ids: Tensor) -> Tensor:
        """See Int8Embedding."""
        return self.weight[ids] * self.scale[ids].unsqueeze(-1)


def quantize(model: nn.Module, rounding: Rounding = rounded) -> None:
    """Give every linear layer and table of words of a model weights of 8 bits, in its place; what was tied stays tied.

    All else stays as it is.
    """
    first: dict[int, Int8Linear | Int8Embedding] = {}
    for path, module in list(model.named_modules(remove_duplicate=False)):
        made: Int8Linear | Int8Embedding
        if isinstance(module, nn.Linear):
            made = Int8Linear.of(module, rounding)
        elif isinstance(module, nn.Embedding):
            made = Int8Embedding.of(module, rounding)
        else:
            continue
        tied = first.setdefault(id(module.weight), made)
        made.weight, made.scale = tied.weight, tied.scale
        model.set_submodule(path, made)
