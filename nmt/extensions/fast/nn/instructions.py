"""Instructions of a processor or GPU for fast products in small number formats.

torch computes such products without them too, only slowly: each caller chooses its format by what is fast.
"""

import os
from typing import Final

import torch

# Functions of torch.cpu in versions without `get_capabilities`, by instruction set.
OLD_CAPABILITIES: Final = {"avx512_vnni": "_is_vnni_supported", "avx512_bf16": "_is_avx512_bf16_supported"}
# Values of ONEDNN_MAX_CPU_ISA that keep oneDNN from these instructions, although the processor has them.
ISA_WITHOUT_VNNI: Final = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE")
ISA_WITHOUT_BFLOAT16: Final = (*ISA_WITHOUT_VNNI, "AVX512_CORE_VNNI")


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for products of bfloat16.

    Without them torch takes many times as long for such products as for those of float32.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return _processor_has("avx512_bf16", "bf16") and _max_isa() not in ISA_WITHOUT_BFLOAT16  # x86, and ARM


def has_vnni() -> bool:
    """Whether the processor multiplies bytes with 32-bit sums (AVX-512 VNNI), without 16-bit sums in between."""
    return _processor_has("avx512_vnni") and _max_isa() not in ISA_WITHOUT_VNNI


def _processor_has(*instructions: str) -> bool:
    """Whether the processor has one of these instruction sets, by cpuinfo's names; False where torch cannot tell."""
    if hasattr(torch.cpu, "get_capabilities"):
        return any(torch.cpu.get_capabilities().get(name) for name in instructions)
    names = [OLD_CAPABILITIES[name] for name in instructions if name in OLD_CAPABILITIES]
    return any(getattr(torch.cpu, name, bool)() for name in names)


def _max_isa() -> str:
    """The newest instruction set that the user lets oneDNN use; an empty text if there is no limit."""
    return (os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "").upper()
