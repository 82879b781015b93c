"""Shared libraries that tests compile, once for each version of their source."""

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path


def compiled(source: Path, compiler: Sequence[str], more: Sequence[str] = (), version: str = "") -> Path:
    """The library made from a source. more: flags after the source; version: that of its other dependencies"""
    flags = "\0".join([*compiler, *more, version])
    key = hashlib.sha256(source.read_bytes() + flags.encode()).hexdigest()[:16]
    folder = Path.home() / ".cache/nmt-tests"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    library = folder / f"{source.stem}-{key}.so"
    if not library.exists():
        made = library.with_suffix(f".{os.getpid()}")
        subprocess.run([*compiler, "-shared", "-fPIC", "-o", str(made), str(source), *more], check=True)
        made.rename(library)
    return library
