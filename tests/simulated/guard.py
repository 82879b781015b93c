"""Compile and load the device guard that simulated GPUs need; needs g++, and torch must not be imported before."""

import ctypes
import importlib.util
from importlib.metadata import version
from pathlib import Path

from compiled import compiled

SOURCE = Path(__file__).with_name("guard.cpp")


def load() -> None:
    """Load the device guard and the hooks of guard.cpp, compiled for this torch at the first call."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.submodule_search_locations
    torch = Path(spec.submodule_search_locations[0])
    linked = [f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{torch / 'lib'}"]
    if (torch / "lib/libtorch_cuda.so").exists():  # a CUDA build: its own guard is loaded first, and then replaced
        linked += ["-Wl,--no-as-needed", "-ltorch_cuda"]
    compiler = ["g++", "-std=c++20", "-O0", f"-I{torch / 'include'}"]
    ctypes.CDLL(str(compiled(SOURCE, compiler, linked, version("torch"))), mode=ctypes.RTLD_GLOBAL)
