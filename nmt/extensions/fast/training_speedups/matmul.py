"""Selects the fastest matrix products on a CPU for training, and reports slow number formats."""

from typing import Any, Final, cast

from torch import nn

from nmt import UserError, register
from nmt.device import CAST_TO
from nmt.extensions.fast.nn import products
from nmt.extensions.fast.nn.instructions import has_bfloat16
from nmt.extensions.fast.training_speedups.options import TrainingMatmulOptions
from nmt.nn import matmul
from nmt.training_speedups.base import TrainingSpeedup

PRODUCT_ROWS: Final = 1024


@register("training-speedup", "matmul", TrainingMatmulOptions)
class TrainingMatmul(TrainingSpeedup):
    """float32 products on a CPU with torch or oneDNN, and 16-bit products in whole blocks of rows."""

    def before_updates(self, run: Any) -> None:
        """See TrainingSpeedup."""
        report_slow_format(run)
        chosen, limit = self.options.matmul, run.progress.limit
        if chosen == "onednn" and not products.onednn_available():
            raise UserError("--matmul onednn: this build of torch has no oneDNN (use auto or torch)")
        if chosen != "auto":
            limit.matmul = chosen
        elif limit.matmul is None or (limit.matmul == "onednn" and not products.onednn_available()):
            limit.matmul = _faster_products(run)
        matmul.use(products.FastProducts(limit.matmul))


def report_slow_format(run: Any) -> None:
    """Report a --precision that this processor or GPU has no instructions for."""
    precision = run.options.precision
    if run.device.type == "cpu" and precision in CAST_TO:
        ratio = products.speedup_of_type(CAST_TO[precision], *product_sizes(run.model))
        if ratio < 1:
            slower = f"{1 / ratio:.1f} times slower than fp32 on this processor (use fp32)"
            run.report.line(f"--precision {precision}: {slower}")
    elif precision == "bf16" and not has_bfloat16(run.device):
        run.report.line(
            "--precision bf16: this GPU has no bf16 instructions and emulates them slowly (use fp16 or fp32)"
        )


def _faster_products(run: Any) -> products.Matmul:
    """The faster implementation of float32 products on a CPU, as measured on the first rank."""
    if run.device.type != "cpu" or run.options.precision in CAST_TO:
        return "torch"
    faster, ratio = products.measured(*product_sizes(run.model))
    agreed = cast(products.Matmul, run.world.gather(faster.encode())[0].decode())
    if ratio:  # no measurement if oneDNN is missing or less precise
        run.report.line(
            f"matrix products use {agreed}; oneDNN takes {1 / ratio:.2f} times as long as torch (--matmul changes this)"
        )
    return agreed


def product_sizes(model: nn.Module) -> tuple[int, int, int]:
    """Return (rows, inputs, outputs) of the most common product in the model's layers."""
    outputs, inputs = max((weight.shape for weight in model.parameters() if weight.ndim == 2), key=min)
    return PRODUCT_ROWS, inputs, min(outputs, 4 * inputs)
