"""Compiles and loads what a CPU build of torch lacks for tensors that say "cuda"; needs g++, and no import of torch before."""

import ctypes
import hashlib
import importlib.util
import os
import subprocess
from importlib.metadata import version
from pathlib import Path

SOURCE = Path(__file__).with_name("guard.cpp")


def load() -> None:
    """Load the device guard and the hooks of guard.cpp, compiled for this torch at the first call."""
    key = hashlib.sha256(SOURCE.read_bytes() + version("torch").encode()).hexdigest()[:16]
    folder = Path.home() / ".cache/nmt-simulated-cuda"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    library = folder / f"guard-{key}.so"
    if not library.exists():
        spec = importlib.util.find_spec("torch")
        assert spec is not None and spec.submodule_search_locations
        torch = Path(spec.submodule_search_locations[0])
        made = library.with_suffix(f".{os.getpid()}")
        options = ["-std=c++20", "-O0", "-shared", "-fPIC", f"-I{torch / 'include'}"]
        linked = [f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{torch / 'lib'}"]
        subprocess.run(["g++", *options, str(SOURCE), "-o", str(made), *linked], check=True)
        made.rename(library)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
