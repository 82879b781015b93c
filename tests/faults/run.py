"""`make faults`: each file operation of each command fails, or is the last before kill -9; prints what came of it.

python tests/faults/run.py [--phases PREFIX...] [--every N] [--page docs/reliability.md]
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from compiled import compiled  # noqa: E402 - in that folder


def injector() -> Path:
    """The compiled injector."""
    return compiled(HERE / "injector.c", ["gcc", "-O1", "-Wall", "-Wextra", "-Werror"], ["-ldl"])


def main() -> None:
    path = os.pathsep.join(map(str, (HERE.parent, HERE.parent.parent)))  # this checkout, whatever is installed
    environment = {"LD_PRELOAD": str(injector()), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, str(HERE / "table.py"), *sys.argv[1:]]
    os.execve(sys.executable, arguments, {**os.environ, **environment})


if __name__ == "__main__":
    main()
