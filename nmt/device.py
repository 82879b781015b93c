"""The device that a model runs on: its choice, precision, memory and allocator settings."""

import ctypes
import os
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from functools import cache
from pathlib import Path
from typing import Final, Literal

import torch

from nmt.errors import UserError, quoted

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
CGROUP_V1_FILES: Final = ("limit_in_bytes", "usage_in_bytes")
CGROUP_V2_FILES: Final = ("max", "current")
CAST_TO: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}

_M_TRIM_THRESHOLD: Final = -1  # glibc, malloc.h
_M_TOP_PAD: Final = -2
_M_MMAP_MAX: Final = -4


@cache
def default_threads() -> int:
    """The number of threads that torch used on a CPU before `use_threads` was called."""
    return torch.get_num_threads()


def use_threads(number: int | None) -> None:
    """Set the number of threads (at least one) that torch uses on a CPU. None keeps torch's choice."""
    default_threads()
    if number is not None:
        torch.set_num_threads(number)


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """The device for a name: auto, cpu, cuda or cuda:N.

    `auto` means the GPU if there is one. With `cuda`, each rank on a machine gets a different GPU.
    Raises UserError for a device that does not exist.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    name = f"cuda:{local_rank}" if name == "cuda" else name
    if not re.fullmatch(r"cpu|cuda:(0|[1-9][0-9]*)", name):
        raise UserError(f"--device '{quoted(name)}': unknown device (use auto, cpu, cuda or cuda:N)")
    if name != "cpu" and int(name.removeprefix("cuda:")) >= torch.cuda.device_count():
        raise UserError(f"--device {name}: torch finds {torch.cuda.device_count()} CUDA devices (use --device cpu)")
    return torch.device(name)


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """A context that computes matrix products in 16 bits for bf16 and fp16. Weights stay in float32."""
    return torch.autocast(device.type, CAST_TO.get(precision, torch.bfloat16), enabled=precision in CAST_TO)


class Memory:
    """The memory of a device in bytes: its peak use since `watch`, and its free memory.

    On a CPU this is the process's resident memory. If the system cannot reset the peak, it is the peak since the process started.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.on_gpu = device, device.type == "cuda"

    def watch(self) -> None:
        """Reset the peak."""
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")

    def peak(self) -> int:
        """The peak use since `watch`."""
        if self.on_gpu:
            return torch.cuda.max_memory_allocated(self.device)
        since_start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in KiB, but in bytes on macOS
        return _kibibytes("/proc/self/status", "VmHWM:") or since_start * (1 if sys.platform == "darwin" else 1024)

    def free(self) -> int:
        """The number of bytes that this process can still allocate."""
        if self.on_gpu:
            cached = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
            return torch.cuda.mem_get_info(self.device)[0] + cached
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
        groups = cgroup_headrooms(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
        limits = [_kibibytes("/proc/meminfo", "MemAvailable:") or physical, *groups]
        addresses, _ = resource.getrlimit(resource.RLIMIT_AS)  # `ulimit -v`
        if addresses != resource.RLIM_INFINITY:
            limits.append(addresses - _kibibytes("/proc/self/status", "VmSize:"))
        return min(limits)


def _kibibytes(file: str, name: str) -> int:
    """The bytes from a line `name N kB` in a Linux status file; 0 if there is no such line."""
    with suppress(OSError):
        for line in Path(file).read_text().splitlines():
            if line.startswith(name):
                return 1024 * int(line.split()[1])
    return 0


def cgroup_headrooms(groups: Path, mounted: Path) -> Iterator[int]:
    """The remaining bytes under each limit of the process's control groups (of a container or job), in version 1 or 2.

    groups: file with lines `number:controllers:path`; if the path does not exist (in a container), the limit is at the root
    mounted: mount point of the control groups
    """
    with suppress(OSError):
        for line in groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            root, files = (mounted / "memory", CGROUP_V1_FILES) if controllers else (mounted, CGROUP_V2_FILES)
            innermost = root / path.lstrip("/")
            for group in (innermost, *innermost.parents):
                if group.is_relative_to(root):
                    yield from _group_headroom(group, *files)


def _group_headroom(group: Path, limit_file: str, use_file: str) -> Iterator[int]:
    """The limit of a group minus its use. Cached files count as free, because the system drops them if it needs memory."""
    with suppress(OSError, ValueError):  # a limit of "max" is not a number
        limit, use = (int((group / f"memory.{name}").read_text()) for name in (limit_file, use_file))
        stat = group / "memory.stat"
        rows = (line.split() for line in stat.read_text().splitlines()) if stat.exists() else ()
        cached = sum(int(size) for name, size in rows if name in ("inactive_file", "active_file"))
        yield max(limit - use + cached, 0)


def keep_pages() -> None:
    """Make glibc's malloc keep large freed blocks, because each training step allocates them again.

    By default, every step unmaps each block and faults it in again. Does nothing if libc is not glibc.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(_M_TOP_PAD, 2**28)


def release_memory() -> None:
    """Return unused memory to the machine and the GPU, for other processes and for other libraries in this process."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def device_of(scorer: object) -> torch.device:
    """The device of a module's parameters; the CPU for a Scorer that is not a module."""
    return next(scorer.parameters()).device if isinstance(scorer, torch.nn.Module) else torch.device("cpu")
