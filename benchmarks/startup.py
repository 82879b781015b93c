"""Measure the CPU time of commands that should be instant: help, a mistyped flag, TAB, first line of `nmt translate`.

`make bench-startup MODEL=model [FLAGS="--other CHECKOUT"]` prints a table, with `python -c pass` and `import torch` to
compare. With --other the same commands of another checkout run alternately.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NMT = [sys.executable, "-m", "nmt"]
HELPS = ["", "prepare", "train", "translate"]
TYPED = {"_NMT_COMPLETE": "complete_bash", "COMP_WORDS": "nmt train --max-u", "COMP_CWORD": "2"}


def cpu_seconds(command: list[str], checkout: Path, variables: dict[str, str], line: bytes) -> float:
    """User and system time of a process and its children."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), **variables}
    before = os.times()
    done = subprocess.run(command, cwd=checkout, env=environment, input=line, capture_output=True)
    if done.returncode not in (0, 2):  # 2: of the mistyped flag
        raise SystemExit(f"{' '.join(command)}: {done.stderr.decode()}")
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="model folder, for the first line of a translation")
    parser.add_argument("--other", type=Path, help="another checkout of nmt")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    cases: dict[str, tuple[list[str], dict[str, str], bytes]] = {
        "python -c pass": ([sys.executable, "-c", "pass"], {}, b""),
        "import torch": ([sys.executable, "-c", "import torch"], {}, b""),
        **{f"nmt {name} --help".replace("  ", " "): ([*NMT, *name.split(), "--help"], {}, b"") for name in HELPS},
        "a mistyped flag": ([*NMT, "train", "--max-updats", "3"], {}, b""),
        "TAB after --max-u": (NMT, TYPED, b""),
    }
    if given.model:
        cases["first line"] = (
            [*NMT, "translate", "--model", str(given.model.resolve()), "--threads", "1"],
            {},
            b"a small dog\n",
        )
    checkouts = [ROOT, *([given.other] if given.other else [])]
    times: dict[tuple[str, Path], list[float]] = {(case, checkout): [] for case in cases for checkout in checkouts}
    for _ in range(given.rounds):
        for case, (command, variables, line) in cases.items():
            for checkout in checkouts:
                times[case, checkout].append(cpu_seconds(command, checkout, variables, line))
    print(f"CPU seconds, medians of {given.rounds} alternating rounds")
    print(f"{'':24}{'here':>8}" + (f"{'other':>8}" if given.other else ""))
    for case in cases:
        print(f"{case:24}" + "".join(f"{statistics.median(times[case, checkout]):8.2f}" for checkout in checkouts))


if __name__ == "__main__":
    main()
