"""The int8 weight format (nmt.extensions.fast.nn.quantized)."""

import torch
from torch import nn

from nmt import UserError, register
from nmt.extensions.fast.nn.quantized import empty_rounded, int8_available, quantize
from nmt.options import NoOptions
from nmt.weight_formats.base import WeightFormat


@register("weight-format", "int8", NoOptions)
class Int8(WeightFormat):
    """8-bit weights and products, on CPUs only. The weights need a quarter of the memory."""

    def check(self, device: torch.device) -> None:
        """See WeightFormat."""
        if device.type != "cpu":
            raise UserError(f"--device {device}: 8-bit weights work only on CPUs (use --device cpu)")
        if not int8_available():
            raise UserError(
                "this build of torch does not support 8-bit products (use --precision fp32 and a model with 32-bit weights)"
            )

    def convert(self, model: nn.Module) -> None:
        """See WeightFormat."""
        quantize(model)

    def convert_layers(self, model: nn.Module) -> None:
        """See WeightFormat."""
        quantize(model, empty_rounded)
