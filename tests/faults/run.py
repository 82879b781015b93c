"""`make faults`: each file operation of each command fails, or is the last before kill -9; prints what came of it.

python tests/faults/run.py [--phases PREFIX...] [--every N] [--page docs/reliability.md]
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "injector.c"


def main() -> None:
    environment = {"LD_PRELOAD": str(compile_injector()), "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, str(HERE / "table.py"), *sys.argv[1:]]
    os.execve(sys.executable, arguments, {**os.environ, **environment})


def compile_injector() -> Path:
    """The compiled injector, made once for each version of its source."""
    folder = Path.home() / ".cache/nmt-faults"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    library = folder / f"injector-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if not library.exists():
        made = library.with_suffix(f".{os.getpid()}")
        options = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
        subprocess.run(["gcc", *options, "-o", str(made), str(SOURCE), "-ldl"], check=True)
        made.rename(library)
    return library


if __name__ == "__main__":
    main()
