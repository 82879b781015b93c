"""Measure the time that one line takes: `nmt translate` in a pipe, and the Python API, compared with CTranslate2 called directly.

    python benchmarks/latency.py --model FOLDER --source test.en [--beams 4 1] [--lines 200] [--rounds 5] [--threads 1]

FOLDER is an export for CTranslate2. Each engine runs in its own process, gets one line at a time through a pipe, and gets the
next one only after the answer. In each round every engine translates the same lines, one engine after the other. CTranslate2 is
called with the pieces of nmt, so the time of every engine includes encoding and decoding. A figure is the median of the rounds,
a ratio the median of the ratios within a round. `first line` is the time from the start of the process to its first answer.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from models import NMT

ENGINE = Path(__file__).with_name("engine.py")
DIRECT, ENGINES = "ctranslate2", ("ctranslate2", "nmt-ctranslate2", "nmt translate")


class Process:
    """An engine in a separate process."""

    def __init__(self, name: str, given: argparse.Namespace, beam: int) -> None:
        self.counts = name != "nmt translate"  # engine.py reads the number of lines first
        threads = ["--threads", str(given.threads), "--replicas", str(given.threads)]
        # The same search as that of engine.py.
        search = ["--beam-size", str(beam), "--stop", "full", "--length-penalty", "average", "--alpha", "1"]
        command = [*NMT, "translate", "--model", str(given.model), *threads, "--quiet"]
        command += search if beam > 1 else ["--decoder", "greedy"]
        if self.counts:
            job: dict[str, Any] = {"engine": name, "model": str(given.model), "beam": beam, "length": 0, "batch": 0}
            job |= {"threads": given.threads, "replicas": given.threads, "weights": "default", "shortlist": ""}
            job["weights"] = "default" if name == DIRECT else "fp32"
            command = [sys.executable, str(ENGINE), json.dumps(job)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def answer(self, line: str) -> str:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(("1\n" if self.counts else "").encode() + line.encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            if not (chunk := stdout.read(1 << 16)):
                sys.exit("an engine has ended")
            answer += chunk
        return answer.decode().removesuffix("\n")

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measured(process: Process, lines: list[str]) -> tuple[list[float], list[str]]:
    """The milliseconds of each line, and the answers."""
    times, answers = [], []
    for line in lines:
        began = time.perf_counter()
        answers.append(process.answer(line))
        times.append(1000 * (time.perf_counter() - began))
    return times, answers


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--beams", type=int, nargs="+", default=[4, 1])
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    lines = given.source.read_text(encoding="utf-8").splitlines()[: given.lines]
    print(
        f"{'beam':>4} {'engine':<16} {'p50 ms':>8} {'ratio':>6} {'p99 ms':>8} {'ratio':>6} {'first line s':>13} {'ratio':>6}"
    )
    for beam in given.beams:
        rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ENGINES}
        differing = 0
        for _ in range(given.rounds):
            expected: list[str] = []
            for name in ENGINES:
                began = time.perf_counter()
                process = Process(name, given, beam)
                process.answer(lines[0])
                first = time.perf_counter() - began
                times, answers = measured(process, lines)
                process.end()
                expected = expected or answers
                differing += sum(a != b for a, b in zip(answers, expected, strict=True))
                cuts = statistics.quantiles(times, n=100, method="inclusive")
                rows[name].append((cuts[49], cuts[98], first))
        for name, found in rows.items():
            cells = []
            for column in range(3):
                value = statistics.median(row[column] for row in found)
                ratio = statistics.median(
                    row[column] / direct[column] for row, direct in zip(found, rows[DIRECT], strict=True)
                )
                cells += [value, ratio]
            columns = zip(cells, (8, 6, 8, 6, 13, 6), (2, 2, 2, 2, 3, 2), strict=True)
            print(f"{beam:>4} {name:<16} " + " ".join(f"{cell:{width}.{digits}f}" for cell, width, digits in columns))
        print(f"     {differing} answers differ from those of {DIRECT}")


if __name__ == "__main__":
    main()
