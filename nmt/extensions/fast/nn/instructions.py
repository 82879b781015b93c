"""Detects whether a processor or GPU has instructions for fast products in low-precision number formats.

torch can compute such products without these instructions, but slowly, so callers choose a fast number format.
"""

import os
from typing import Final

import torch

# Functions of torch.cpu by instruction set, for versions of torch without `get_capabilities`.
OLD_CAPABILITIES: Final = {"avx512_vnni": "_is_vnni_supported", "avx512_bf16": "_is_avx512_bf16_supported"}
# Values of ONEDNN_MAX_CPU_ISA that prevent oneDNN from using these instructions even if the processor has them.
ISA_WITHOUT_VNNI: Final = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE")
ISA_WITHOUT_BFLOAT16: Final = (*ISA_WITHOUT_VNNI, "AVX512_CORE_VNNI")


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for bfloat16 products.

    Without them, such products take many times as long as float32 products.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return _processor_has("avx512_bf16", "bf16") and _max_isa() not in ISA_WITHOUT_BFLOAT16  # x86, and ARM


def has_vnni() -> bool:
    """Whether the processor sums products of bytes directly in 32 bits (AVX-512 VNNI), without intermediate 16-bit sums."""
    return _processor_has("avx512_vnni") and _max_isa() not in ISA_WITHOUT_VNNI


def _processor_has(*instructions: str) -> bool:
    """Whether the processor has one of these instruction sets, named as in /proc/cpuinfo; False if torch cannot tell."""
    if hasattr(torch.cpu, "get_capabilities"):
        return any(torch.cpu.get_capabilities().get(name) for name in instructions)
    names = [OLD_CAPABILITIES[name] for name in instructions if name in OLD_CAPABILITIES]
    return any(getattr(torch.cpu, name, bool)() for name in names)


def _max_isa() -> str:
    """The newest instruction set that the user allows oneDNN to use; empty if there is no limit."""
    return (os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "").upper()
