"""The program of `run.py`: disturbs commands, prints a row for each command and fault, and writes a page with them."""

import argparse
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import trial
from disk import can_mount
from phases import PHASES, Phase, write_inputs

PAGE = """# Reliability

This page shows what happens if a file operation of a command fails, or if the process is killed. In each row, a fault is
injected into {every} of a command, one operation per trial: the operation fails, or the process is killed just before it. If
this leaves the result incomplete, the same command runs again without a fault. A trial is wrong if it violates one of these
rules:

- In the end, the result equals that of a run without faults, byte for byte. For training, this means weights, optimizer and
  metrics.
- The command without a fault ends with exit status 0. A command with exit status 0 leaves no temporary file.
- An error message names the file or folder of the operation.
- No input file changes, and no command takes longer than {limit:.0f} seconds.

| machine | version | command | trials | wrong |
|---|---|---|---|---|
| {machine}, {date} | Python {python}, torch {torch} | `{command}` | {trials:,} | {wrong} |

| command | operations | fault | trials | exit status 0 | exit status 4 or 5 | killed | wrong |
|---|---|---|---|---|---|---|---|
{rows}

- *ENOSPC* applies only to operations that may need disk space: creating, writing, syncing and renaming.
- The operations are those of the command's process and its threads: opening, reading, writing, syncing, closing, listing,
  renaming, removing and inspecting files. Faults are not injected into child processes.
- *Power loss* runs the command on a separate ext4 file system and kills it. The trial continues with what the device holds at
  that moment, so data that was not synced may be lost. This needs root{no_power}.
- A command with a fault ends with exit status 0 if it can succeed without the failed operation.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--phases", nargs="+", default=[""], help="names of phases begin so")
    parser.add_argument("--every", type=int, default=1, help="disturb every Nth operation")
    parser.add_argument("--page", type=Path, help="write the table as a page of documentation")
    given = parser.parse_args()
    rows, trials, wrong = [], 0, 0
    with tempfile.TemporaryDirectory(prefix="nmt-faults-", dir="/dev/shm") as folder:
        for phase, fault, operations, codes, num_wrong in results(Path(folder), given.phases, given.every):
            total, killed = codes.total(), codes[128 + signal.SIGKILL]
            counts = (total, codes[0], codes[4] + codes[5], killed, num_wrong)
            rows.append(f"| `{phase.name}` | {operations} | {fault.name} | {' | '.join(map(str, counts))} |")
            print(rows[-1], flush=True)
            trials, wrong = trials + total, wrong + num_wrong
    if given.page:
        flags = [f"--every {given.every}"] * (given.every > 1) + [f"--phases {' '.join(given.phases)}"] * any(
            given.phases
        )
        facts = {
            "every": "each file operation" if given.every == 1 else f"one in {given.every} file operations",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "torch": metadata.version("torch"),
            "command": "make faults" + (f' FLAGS="{" ".join(flags)}"' if flags else ""),
            "no_power": "" if any("power loss" in row for row in rows) else ", and was skipped here",
        }
        given.page.write_text(PAGE.format(limit=trial.LIMIT, trials=trials, wrong=wrong, rows="\n".join(rows), **facts))
    print(f"{trials:,} trials, {wrong} wrong")
    return min(wrong, 1)


def results(
    folder: Path, prefixes: list[str], every: int
) -> Iterator[tuple[Phase, trial.Fault, int, Counter[int | None], int]]:
    """For each phase and fault: operations, exit statuses of the disturbed commands, and how many trials were wrong."""
    start, done, work = folder / "start", folder / "done", folder / "work"
    faults = [fault for fault in trial.FAULTS if not fault.power or can_mount(folder)]
    start.mkdir()
    write_inputs(start)
    for phase in PHASES:
        wanted, operations = undisturbed(phase, start, done)
        for fault in faults if phase.name.startswith(tuple(prefixes)) else ():
            counted = [row for row in operations if not fault.only_room or row.needs_room]
            codes, wrong = Counter[int | None](), 0
            for at in range(0, len(counted), every):
                code, found = trial.disturb(phase, start, work, wanted, fault, at)
                codes[code] += 1
                wrong += bool(found)
                for text in found:
                    print(phase.name, fault.name, counted[at].name, counted[at].path, text, sep=" | ", flush=True)
            yield phase, fault, len(counted), codes, wrong
        shutil.rmtree(start)
        done.rename(start)


def undisturbed(phase: Phase, start: Path, done: Path) -> tuple[object, list[trial.Operation]]:
    """The result of a command in `done`, a copy of `start`, and its operations. The first of two runs loads modules."""
    for _ in range(2):
        shutil.rmtree(done, ignore_errors=True)
        shutil.copytree(start, done, symlinks=True)
        ended = trial.run(done, phase)
        assert ended.code == 0, ended.errors
        trial.load(ended.modules)
    return trial.contents(done, phase.output), ended.operations


if __name__ == "__main__":
    sys.exit(main())
