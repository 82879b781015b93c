"""Where the numbers are computed: the device, its precision, its memory, and an allocator that keeps its pages."""

import ctypes
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final, Literal

import torch

from nmt.errors import UserError, quoted

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
VERSION_1: Final = ("limit_in_bytes", "usage_in_bytes")
MOST_GRAPHS: Final = 64
CAST_TO: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}

_M_TRIM_THRESHOLD: Final = -1  # glibc, malloc.h
_M_TOP_PAD: Final = -2
_M_MMAP_MAX: Final = -4


def use_threads(number: int | None) -> None:
    """Work with so many threads, at least one, on a CPU from now on; None leaves it to torch."""
    if number is not None:
        torch.set_num_threads(number)


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
    """Products in a 16-bit type with float32 weights, or everything in float32."""
    return torch.autocast(device.type, CAST_TO.get(precision, torch.bfloat16), enabled=precision in CAST_TO)


def allow_graphs() -> None:
    """Let torch.compile make many graphs of a kind of layer: behind its own 8 a layer would silently run as it is written."""
    from torch._dynamo import config

    config.recompile_limit = MOST_GRAPHS


class Memory:
    """The memory of a device: what is in use at most since `watch`, and what there is. All in bytes.

    On a CPU it is the process's resident memory; where the system cannot forget its peak, it is that of all its life.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.on_gpu = device, device.type == "cuda"

    def watch(self) -> None:
        """Begin to look for the peak anew."""
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")

    def peak(self) -> int:
        """The most that was in use since `watch`."""
        if self.on_gpu:
            return torch.cuda.max_memory_allocated(self.device)
        return _kibibytes("/proc/self/status", "VmHWM:") or _largest_resident()

    def free(self) -> int:
        """What this process may still take."""
        if self.on_gpu:
            cached = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
            return torch.cuda.mem_get_info(self.device)[0] + cached
        of_machine = _kibibytes("/proc/meminfo", "MemAvailable:") or os.sysconf("SC_PHYS_PAGES") * os.sysconf(
            "SC_PAGESIZE"
        )
        return min([of_machine, *_left_of_limits()])


def _kibibytes(file: str, name: str) -> int:
    """A line `name N kB` of one of Linux's files as bytes; 0 where there is none."""
    with suppress(OSError):
        for line in Path(file).read_text().splitlines():
            if line.startswith(name):
                return 1024 * int(line.split()[1])
    return 0


def _largest_resident() -> int:
    """The peak of the process's life: getrusage counts KiB, on macOS bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def _left_of_limits() -> Iterator[int]:
    """What the control groups and the address space (`ulimit -v`) leave."""
    yield from left_of_groups(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY:
        yield addresses - _kibibytes("/proc/self/status", "VmSize:")


def left_of_groups(groups: Path, mounted: Path) -> Iterator[int]:
    """What each limit of the process's control groups leaves, a container's or a job's: of their version 2, and of 1.

    groups: lines `number:controllers:path`; in a container the path may not be there, and the limit is that of the root
    """
    with suppress(OSError):
        for line in groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            root, names = (mounted, ("max", "current")) if not controllers else (mounted / "memory", VERSION_1)
            own = root / path.lstrip("/")
            for group in (own, *own.parents):
                if group.is_relative_to(root):
                    yield from _left_of_group(group, *names)


def _left_of_group(group: Path, limit: str, used: str) -> Iterator[int]:
    """Limit less use; files that are cached count as free, for they go when memory is wanted."""
    with suppress(OSError, ValueError):  # "max" is no number
        most, now = (int((group / f"memory.{name}").read_text()) for name in (limit, used))
        stat = group / "memory.stat"
        rows = (line.split() for line in stat.read_text().splitlines()) if stat.exists() else ()
        cached = sum(int(size) for name, size in rows if name in ("inactive_file", "active_file"))
        yield max(most - now + cached, 0)


def keep_pages() -> None:
    """Tell glibc's malloc to keep large blocks: a training step frees and asks for the same ones each time.

    Without it each is unmapped, and faulted in again, every step. Does nothing where libc is not glibc.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(_M_TOP_PAD, 2**28)


def give_back() -> None:
    """Give the pages that nothing uses back to the machine and to the GPU: others, or other libraries here, may need them."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def device_of(scorer: object) -> torch.device:
    """The device of a module's parameters; the CPU for a Scorer that is no module."""
    return next(scorer.parameters()).device if isinstance(scorer, torch.nn.Module) else torch.device("cpu")
