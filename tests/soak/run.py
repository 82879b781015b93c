"""`make soak`: hours of training on two ranks with random faults, and ten million lines of translation; prints the results.

python tests/soak/run.py [--hours 2] [--lines 10000000] [--seed 1]

The disturbed run must have the metrics and weights of an undisturbed one, no command may end with an exit status
outside the contract, and the memory of the translation must not grow. Needs Linux, gcc and root (for a small disk).
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import IO, Final

TESTS: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from compiled import compiled  # noqa: E402 - in that folder
from conftest import NMT, TINY, WORDS, heed_signals, small_disk, small_model, write_corpus  # noqa: E402
from ranks import ranks_of  # noqa: E402

from nmt.report.run_status import METRICS_FILE  # noqa: E402
from nmt.runs import TRAINING, Checkpoints  # noqa: E402

DISK_BYTES: Final = 200_000_000
MEAN_SECONDS: Final = 25.0  # between faults: a start takes ten seconds
END_SECONDS: Final = 300.0  # in which processes must end: after slow imports ranks wait two minutes for each other
STOPPED_MINUTES: Final = 0.2  # value of --timeout
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
ENDED_BY_SIGNAL: Final = frozenset(128 + number for number in SIGNALS)
CODES: Final = {  # exit statuses that a fault can cause; the other faults cause none
    "kill_rank": {5},
    "stop_rank": {5},
    "fill_disk": {5},
    "kill_launcher": {128 + signal.SIGKILL},
    "signal_one": ENDED_BY_SIGNAL,
    "signal_all": ENDED_BY_SIGNAL,
    "the end": {128 + signal.SIGTERM},
}
WINDOW_LINES: Final = 100_000
MAX_GROWTH: Final = 1.05  # growth of memory, from the first tenth of the lines to the last


@dataclass
class Soak:
    """A training run that is disturbed.

    counts: exit statuses by fault; wrong: events that must not happen
    """

    command: list[str]
    environment: dict[str, str]
    run: Path
    chance: random.Random
    clock: Path
    resize: Callable[[int], None]
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    wrong: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Record an event that must not happen, and print it at once."""
        self.wrong.append(text)
        print(f"wrong: {text}", file=sys.stderr, flush=True)

    def disturb(self, seconds: float) -> None:
        """Start the training, apply random faults and restart it until `seconds` have passed; then end it with a signal."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with tempfile.TemporaryFile("w+") as errors:  # a pipe that nobody reads would fill
                names = self.disturb_one(errors, end)
                errors.seek(0)
                if "Traceback" in (text := errors.read()):
                    self.note(f"{', '.join(names)}: {text}")
        self.resize(DISK_BYTES)

    def disturb_one(self, errors: IO[str], end: float) -> list[str]:
        """Start the command and apply faults until a fault or the time ends it. Returns the names of the faults."""
        faults = [self.kill_rank, self.kill_launcher, self.stop_rank, self.pause, self.signal_one, self.signal_all]
        faults += [self.fill_disk, self.shift_clock]
        process = subprocess.Popen(self.command, stderr=errors, text=True, env=self.environment)
        ranks, names, must_end = dict[int, int](), ["nothing"], False
        while process.poll() is None and not must_end and time.monotonic() < end:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.chance.expovariate(1 / MEAN_SECONDS))
            if process.poll() is None:
                fault, ranks = self.chance.choice(faults), ranks_of(process)
                names.append(fault.__name__)
                must_end = fault(process, ranks)
                self.counts[names[-1]]["in all"] += 1
        if not must_end and process.poll() is None:
            names.append("the end")
            process.terminate()
        self.see_end(names, process, ranks)
        return names

    def see_end(self, names: list[str], process: "subprocess.Popen[str]", ranks: dict[int, int]) -> None:
        """Wait for the end of a command and its ranks, and count its exit status. names: of its faults"""
        fault = names[-1]
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.note(f"{fault}: did not end")
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        self.counts[fault][str(code)] += 1
        if not any(code in CODES.get(name, ()) for name in names):
            self.note(f"{', '.join(names)}: exit status {code}")
        deadline = time.monotonic() + END_SECONDS
        while alive := [pid for pid in ranks.values() if Path(f"/proc/{pid}").exists()]:
            if time.monotonic() > deadline:
                self.note(f"{fault}: ranks {alive} did not end")
                return
            time.sleep(0.1)

    # Each of these disturbs a command and its ranks, and returns whether that must end the command.

    def kill_rank(self, process: "subprocess.Popen[str]", ranks: dict[int, int]) -> bool:
        return self.to_one(ranks, signal.SIGKILL)

    def kill_launcher(self, process: "subprocess.Popen[str]", ranks: dict[int, int]) -> bool:
        process.kill()
        return True

    def stop_rank(self, process: "subprocess.Popen[str]", ranks: dict[int, int]) -> bool:
        return self.to_one(ranks, signal.SIGSTOP)

    def pause(self, process: "subprocess.Popen[str]", ranks: dict[int, int]) -> bool:
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in (*ranks.values(), process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(3)
        return False

    def signal_one(self, process: "subprocess.Popen[str]", ranks: dict[int, int]) -> bool:
        return self.to_one(ranks, self.chance.choice(SIGNALS))

    def signal_all(self, process: "subprocess.Popen[str]", ranks: dict[int, int]) -> bool:
        process.send_signal(self.chance.choice(SIGNALS))
        return True

    def fill_disk(self, process: "subprocess.Popen[str]", ranks: dict[int, int]) -> bool:
        used = os.statvfs(self.run.parent)
        left = used.f_frsize * self.chance.randint(0, 100)
        # A resize fails if more was written meanwhile.
        with contextlib.suppress(subprocess.CalledProcessError, subprocess.TimeoutExpired):
            self.resize((used.f_blocks - used.f_bfree) * used.f_frsize + left)
            process.wait(self.chance.uniform(1, 20))
        self.resize(DISK_BYTES)
        return process.poll() is not None

    def shift_clock(self, process: "subprocess.Popen[str]", ranks: dict[int, int]) -> bool:
        self.clock.write_text(str(self.chance.choice([-1, 1]) * round(10 ** self.chance.uniform(0, 8.5))))
        return False

    def to_one(self, ranks: dict[int, int], number: int) -> bool:
        if not ranks:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.chance.choice(list(ranks.values())), number)
        return True


def train(folder: Path, hours: float, seed: int) -> list[str]:
    """Train with and without faults. Returns what went wrong."""
    write_corpus(folder / "train", 3000, 1)
    write_corpus(folder / "dev", 50, 2)
    prepare = ["prepare", "--source-lang=en", "--target-lang=de", f"--train={folder / 'train'}", "--subword=none"]
    subprocess.run([*NMT, *prepare, f"--valid={folder / 'dev'}", f"--output={folder / 'data'}", "--quiet"], check=True)
    periods = ["--save-every=25u", "--valid-every=100u", "--log-every=50u", "--keep-last=2", "--max-updates=none"]
    common = [*NMT, "train", f"--data={folder / 'data'}", *TINY, *periods, "--devices=2", "--quiet"]
    common += [f"--timeout={STOPPED_MINUTES}"]
    library = compiled(TESTS / "soak/clock.c", ["gcc", "-O1", "-Wall", "-Wextra", "-Werror"], ["-ldl"])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    (folder / "clock").write_text("0")
    disturbed = {**environment, "LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(folder / "clock")}
    (folder / "disk").mkdir()
    with small_disk(folder / "disk", DISK_BYTES) as resize:
        run = folder / "disk/run"
        chance = random.Random(seed)
        soak = Soak([*common, f"--output={run}"], disturbed, run, chance, folder / "clock", resize)
        soak.disturb(3600 * hours)
        newest = Checkpoints(run).newest_valid()
        assert newest is not None, "nothing was saved"
        last = newest.manifest["update"]
        whole = [*common, f"--output={folder / 'whole'}", f"--max-updates={last}"]
        subprocess.run(whole, check=True, env=environment)
        other = Checkpoints(folder / "whole").path(last)
        offset = newest.json(TRAINING)["metrics_offset"]  # lines of unsaved updates can follow
        metrics = [(path / METRICS_FILE).read_bytes()[:offset] for path in (run, folder / "whole")]
        same = {
            METRICS_FILE: metrics[0] == metrics[1],
            **{
                name: newest.path(name).read_bytes() == (other / name).read_bytes()
                for name in ("model.safetensors", "training.safetensors")
            },
        }
    print(f"{last:,} updates; equal to the undisturbed run: {same}")
    print("| fault | exit statuses and counts |\n|---|---|")
    for fault, codes in sorted(soak.counts.items()):
        print(f"| {fault.replace('_', ' ')} | {', '.join(f'{code}: {n}' for code, n in sorted(codes.items()))} |")
    return soak.wrong + [f"{name} is another" for name, is_same in same.items() if not is_same]


def translate(folder: Path, lines: int) -> list[str]:
    """Pipe lines through `nmt translate`. Returns what went wrong."""
    model = small_model(folder / "model", d_model=16, d_ff=16, heads=1, encoder_layers=1, decoder_layers=1)
    command = [
        *NMT,
        "translate",
        f"--model={model}",
        "--decoder=greedy",
        "--max-len-a=0",
        "--max-len-b=8",
        "--threads=1",
    ]
    process = subprocess.Popen([*command, "--quiet"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout
    feeder = Thread(target=lambda: feed(process, lines), daemon=True)
    feeder.start()
    memory, count = [], 0
    for _ in process.stdout:
        count += 1
        if count % WINDOW_LINES == 0 and count < lines:  # after the last line the process may already have ended
            memory.append(resident_kib(process.pid))
            print(f"\r{count:,} lines, {memory[-1] / 1024:.0f} MiB", end="", flush=True)
    code = process.wait()
    tenth = max(1, len(memory) // 10)
    growth = max(memory[-tenth:]) / max(memory[:tenth]) if memory else 1.0
    print(f"\n{count:,} of {lines:,} lines; memory over the last tenth relative to the first: {growth:.3f}")
    wrong = [f"translate: exit status {code}"] if code else []
    wrong += [f"translate: {count:,} lines out of {lines:,}"] if count != lines else []
    return wrong + ([f"translate: memory grew by {growth:.3f}"] if growth > MAX_GROWTH else [])


def feed(process: "subprocess.Popen[str]", lines: int) -> None:
    """Write lines of 0 to 9 words; one line in ten thousand has 1,000 words."""
    assert process.stdin
    chance = random.Random(1)
    for number in range(lines):
        words = chance.choices(WORDS, k=1000 if number % 10_000 == 9_999 else chance.randint(0, 9))
        process.stdin.write(" ".join(words) + "\n")
    process.stdin.close()


def resident_kib(pid: int) -> int:
    """The resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--hours", type=float, default=2.0, help="hours of disturbed training")
    arguments.add_argument("--lines", type=int, default=10_000_000, help="lines to translate")
    arguments.add_argument("--seed", type=int, default=1, help="seed of the random faults")
    given = arguments.parse_args()
    heed_signals()  # the commands inherit ignored signals
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="nmt-soak-") as folder:
        wrong += train(Path(folder), given.hours, given.seed) if given.hours else []
        wrong += translate(Path(folder), given.lines) if given.lines else []
    for text in wrong:
        print(text)
    print(f"{len(wrong)} errors")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
