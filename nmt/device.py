"""Where the numbers are computed: the device, its precision, and an allocator that keeps its pages."""

import ctypes
from contextlib import AbstractContextManager
from typing import Final, Literal

import torch

from nmt.errors import UserError, quoted

Precision = Literal["fp32", "bf16"]

_M_TRIM_THRESHOLD: Final = -1  # glibc, malloc.h
_M_TOP_PAD: Final = -2
_M_MMAP_MAX: Final = -4


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """auto: the GPU when there is one; each rank of a machine its own. Raises UserError for a device that is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    name = f"cuda:{local_rank}" if name == "cuda" else name
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not (kind == "cuda" and number.isdecimal())):
        raise UserError(f"--device '{quoted(name)}': wanted auto, cpu, cuda or cuda:N")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise UserError(f"--device {name}: torch sees {torch.cuda.device_count()} CUDA devices here (use --device cpu)")
    return torch.device(name)


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Products in bfloat16 with float32 weights, or everything in float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def keep_pages() -> None:
    """Tell glibc's malloc to keep large blocks: a training step frees and asks for the same ones each time.

    Without it each is unmapped, and faulted in again, every step. Does nothing where libc is not glibc.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(_M_TOP_PAD, 2**28)
