"""Linear layers with weights of 8 bits, for translating on CPUs: a quarter of the memory, and faster products.

Each output has a scale for its weights, fixed; each row of the input has one for its numbers, found when it comes. So a
sentence is computed as it would be alone, whatever stands beside it in a batch. Sums are whole numbers of 32 bits.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn

MOST: Final = 127  # of a weight; and of an input, where the processor sums pairs of products in 32 bits
TINY: Final = torch.finfo(torch.float32).tiny
HALF: Final = 63  # of an input where it sums them in 16 bits, which more would overflow


class Int8Linear(nn.Module):
    """A linear layer, states (..., D) -> (..., E). weight: (E, D) int8; scale: (E,) float32; bias: (E,) or None"""

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)
        self.most = MOST if _sums_in_32_bits() else HALF
        self._packed = _packed(weight, scale)

    @classmethod
    def of(cls, linear: nn.Linear) -> "Int8Linear":
        """A layer's weights, rounded."""
        weight = linear.weight.detach()
        scale = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / MOST
        bias = None if linear.bias is None else linear.bias.detach()
        return cls(torch.round(weight / scale[:, None]).to(torch.int8), scale, bias)

    def rows(self, rows: Tensor) -> "Int8Linear":
        """A layer that computes only some outputs. rows: (E',) which"""
        return Int8Linear(self.weight[rows], self.scale[rows], None if self.bias is None else self.bias[rows])

    def bound(self) -> Callable[[Tensor], Tensor]:
        """See Linear."""
        return self.forward

    def forward(self, states: Tensor) -> Tensor:
        """See Int8Linear."""
        flat = states.reshape(-1, states.shape[-1])
        largest = torch.linalg.vector_norm(flat, math.inf, 1, keepdim=True).add_(TINY)
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


def quantize(model: nn.Module) -> None:
    """Give every linear layer of a model weights of 8 bits, in its place. Embeddings and all else stay as they are."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear.of(child))
