"""Selects the fastest matrix products on a CPU for searches, and stores weights in the order in which products read them."""

from typing import Any

from torch import nn

from nmt import register
from nmt.device import device_of
from nmt.extensions.fast.nn.instructions import has_bfloat16
from nmt.extensions.fast.nn.products import FastProducts, choose_matmuls, transpose_weights
from nmt.extensions.fast.nn.quantized import Int8Linear
from nmt.extensions.fast.search_speedups.options import SearchMatmulOptions
from nmt.log import log
from nmt.search_speedups.base import SearchSpeedup


@register("search-speedup", "matmul", SearchMatmulOptions)
class SearchMatmul(SearchSpeedup):
    """Products on a CPU with torch, oneDNN or numpy, whichever is fastest for a shape."""

    def begin(self, engine: Any, decoder: Any) -> None:
        """See SearchSpeedup."""
        engine.products, device = FastProducts(self.options.matmul), device_of(engine.scorer)
        if engine.precision == "bf16" and not has_bfloat16(device):
            log.warn(f"--precision bf16: {device} has no bf16 instructions, so bf16 is several times slower (use fp32)")

    def prepare(self, engine: Any, model: nn.Module) -> None:
        """See SearchSpeedup."""
        transpose_weights(model)
        if isinstance(engine.products, FastProducts) and engine.products.implementation == "auto":
            choose_matmuls(model)
        for module in model.modules():
            if isinstance(module, Int8Linear):
                module.ready()
