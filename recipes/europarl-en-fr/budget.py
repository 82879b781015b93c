"""Train until a training has used a number of CPU seconds, over all calls and all its processes.

    budget.py train --seconds 10800 --used used.jsonl --run run --checkpoints '*.ckpt' --done trained.json -- COMMAND...
    budget.py updates --seconds 10800 --done updates -- nmt train ... --output pilot

`train` records the CPU seconds at each new checkpoint. When they are used up, it sends SIGINT, so that the program can save
a last checkpoint. After an interruption, the same call resumes and continues to count from the newest checkpoint, because
what was computed after it is lost. `updates` measures two short runs and computes how many updates fit into the seconds.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

POLL = 0.5  # seconds between two looks at the processes
PILOT_UPDATES = (20, 120)
SHARE = 0.97  # of the seconds, for which `updates` plans; the speed of a shared machine varies
LONGEST_END = 300  # seconds in which a program must save and end
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(session: int) -> float:
    """CPU seconds of all processes of a session and of their children that have ended."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                total += sum(map(int, fields[11:15]))  # user and system time, its own and of ended children
    return total / TICKS


def checkpoints(run: Path, pattern: str) -> list[Path]:
    """The checkpoints of a run that match a pattern, oldest first, without links."""
    found = []
    for path in run.glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # the training removes old ones
            found.append((path.lstat().st_mtime_ns, path))
    return [path for _, path in sorted(found) if not path.is_symlink()]


def records(used: Path) -> list[dict[str, Any]]:
    """The records of existing checkpoints; a last line that was not completed is ignored."""
    lines = used.read_text().splitlines(keepends=True) if used.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [row for row in rows if Path(row["checkpoint"]).exists()]


def before(used: Path) -> float:
    """CPU seconds until the newest existing checkpoint."""
    return max((float(row["seconds"]) for row in records(used)), default=0.0)


class Training:
    """A training that runs, and its CPU seconds."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.start = given, before(given.used)
        self.known = set(checkpoints(given.run, given.checkpoints))
        self.process = subprocess.Popen(given.command, start_new_session=True)
        self.seconds = self.start

    def look(self) -> None:
        """Count the CPU seconds, and record new checkpoints."""
        self.seconds = max(self.seconds, self.start + cpu_seconds(self.process.pid))
        for path in checkpoints(self.given.run, self.given.checkpoints):
            if path not in self.known:
                self.known.add(path)
                with self.given.used.open("a") as file:
                    file.write(json.dumps({"checkpoint": str(path), "seconds": round(self.seconds, 1)}) + "\n")

    def run(self) -> int:
        """Returns the exit status, 0 if the seconds are used up."""
        stopped = False
        while self.process.poll() is None:
            self.look()
            if not stopped and self.seconds >= self.given.seconds:
                self.process.send_signal(signal.SIGINT)
                stopped = True
            time.sleep(POLL)
        self.look()
        return 0 if stopped else self.process.returncode


def train(given: argparse.Namespace) -> int:
    """Train, or resume, and write how many CPU seconds were used."""
    given.used.parent.mkdir(parents=True, exist_ok=True)
    start = before(given.used)
    if start < given.seconds:
        training = Training(given)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            status = training.run()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(training.process.pid, signal.SIGTERM)
            training.process.wait(LONGEST_END)
        if status:
            return status if status > 0 else 128 - status
        start = training.seconds
    given.done.write_text(json.dumps({"cpu_seconds": start, "checkpoints": records(given.used)}) + "\n")
    return 0


def updates(given: argparse.Namespace) -> int:
    """Write how many updates of `nmt train` fit into the seconds."""
    output = Path(given.command[given.command.index("--output") + 1])
    seconds = []
    for number in PILOT_UPDATES:
        shutil.rmtree(output, ignore_errors=True)
        process = subprocess.Popen([*given.command, "--max-updates", str(number), "--warmup-updates", "1", "--quiet"])
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            return os.waitstatus_to_exitcode(status)
        seconds.append(usage.ru_utime + usage.ru_stime)
    shutil.rmtree(output)
    each = (seconds[1] - seconds[0]) / (PILOT_UPDATES[1] - PILOT_UPDATES[0])
    start = seconds[0] - PILOT_UPDATES[0] * each
    fitting = int((given.seconds * SHARE - start) / each)
    sys.stderr.write(f"{each:.3f} CPU seconds per update: {fitting} updates in {given.seconds:.0f} seconds\n")
    given.done.write_text(f"{fitting}\n")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", choices=("train", "updates"))
    parser.add_argument("--seconds", type=float, required=True, help="CPU seconds")
    parser.add_argument("--used", type=Path, help="file with the CPU seconds at each checkpoint")
    parser.add_argument("--run", type=Path, help="folder of the checkpoints")
    parser.add_argument("--checkpoints", help="pattern of the checkpoints; each must be complete when it appears")
    parser.add_argument("--done", type=Path, required=True, help="file to write at the end")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="the training, after --")
    given = parser.parse_args()
    return train(given) if given.action == "train" else updates(given)


if __name__ == "__main__":
    sys.exit(main())
