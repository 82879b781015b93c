"""Compare the speed of `nmt train` with plain PyTorch and other toolkits: the same model, subwords and threads, alternately.

    python benchmarks/train.py --source train.en --target train.de [--size tiny base] [--rounds 2] [--updates 10]
    python benchmarks/train.py --bench FOLDER --work WORK ...      # FOLDER: their scripts; WORK: where its setup.sh was run

The text must already be split into subwords, separated by blanks. Each round runs each system once, one after the other;
a system's figure is the median of its rounds, and its ratio is the median of the ratios within a round, so that a
slowdown of the machine does not decide. The floor is the counted FLOPs of an update divided by the measured rate of a
large matrix product. `as a user runs it` is nmt with a log line every ten updates, checkpoints and validations: target
tokens divided by all time except validation.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from shapes import SHAPES, flags_of

from nmt.extensions.fast.nn import products
from nmt.nn import matmul

HERE = Path(__file__).parent
NMT = [sys.executable, "-m", "nmt"]
PEERS = ("eole", "yardstick")  # known to the scripts of --bench; a name ending in "-bf16" is a separate system


class Speed(NamedTuple):
    """A measurement.

    tokens: target tokens per second, without padding
    peak: peak memory in bytes
    flops: counted FLOPs per target token; 0 if unknown
    """

    tokens: float
    peak: int
    flops: float = 0.0


def finished(command: Sequence[str], folder: Path | None = None) -> tuple[str, int]:
    """(stdout, peak bytes of the largest process) of a command."""
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            out = process.stdout.read() if process.stdout else ""
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise SystemExit(f"failed: {' '.join(command)}\n{errors.read()}")
    return out, 1024 * used.ru_maxrss


def shape_of(size: str) -> list[str]:
    """Flags of `nmt train`."""
    return ["--preset=transformer-base", *flags_of(size)]


def matmul_rate(threads: int, precision: str) -> float:
    """FLOP/s of a large product by the fastest way for a precision: the best of a few rounds."""
    torch.set_num_threads(threads)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    states, weight = torch.randn(4096, 512).to(dtype), torch.randn(2048, 512).to(dtype)
    paths = ["torch", "onednn"] if products.onednn_available() and precision == "fp32" else ["torch"]
    best = float("inf")
    for path in paths * 10:
        with matmul.using(products.FastProducts(path)), torch.no_grad():
            began = time.perf_counter()
            matmul.product(states, weight)
            best = min(best, time.perf_counter() - began)
    return 2 * 4096 * 512 * 2048 / best


def nmt(given: argparse.Namespace, size: str, flags: Sequence[str]) -> Speed:
    """The speed of training alone."""
    run = given.work / "run"
    shutil.rmtree(run, ignore_errors=True)
    command = [*NMT, "train", f"--data={given.work / 'data'}", f"--output={run}", *shape_of(size), "--log-every=1u"]
    command += [
        f"--batch-tokens={given.batch_tokens}",
        f"--max-tokens={given.batch_tokens}",  # as in the yardstick
        f"--max-updates={given.updates + 3}",
        f"--threads={given.threads}",
    ]
    _, peak = finished([*command, "--no-valid-bleu", "--best-by=loss", "--valid-every=1000000u", "--quiet", *flags])
    told = re.findall(r": Up\. \d+\S* .*tokens/s (\d+)", (run / "train.log").read_text())[3:]
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    updates = [record for record in records if "target_tokens" in record]
    flops = 1e18 * updates[-1]["eflop"] / sum(record["target_tokens"] for record in updates)
    return Speed(statistics.median(map(float, told)), peak, flops)


def seconds_of(line: str) -> float:
    """The time at the start of a line of train.log."""
    return time.mktime(time.strptime(line[1:20], "%Y-%m-%d %H:%M:%S"))


def as_a_user(given: argparse.Namespace, size: str, flags: Sequence[str]) -> tuple[float, float]:
    """Target tokens per second of a run with default options: during training, and over all its time except validation."""
    run = given.work / "run"
    shutil.rmtree(run, ignore_errors=True)
    command = [
        *NMT,
        "train",
        f"--data={given.work / 'data'}",
        f"--output={run}",
        *shape_of(size),
        f"--threads={given.threads}",
    ]
    every = max(1, given.user_updates // 2)
    log_every = 10 if every % 10 == 0 else every  # a log line before each validation, so that its time can be separated
    command += [f"--batch-tokens={given.batch_tokens}", f"--max-updates={given.user_updates + 1}"]
    command += [f"--log-every={log_every}u"]
    period = f"{every}u"
    finished([*command, f"--save-every={period}", f"--valid-every={period}", "--bleu-tokenize=none", "--quiet", *flags])
    lines = [line for line in (run / "train.log").read_text().splitlines() if ": Up. " in line]
    told = [(seconds_of(line), "[valid]" in line) for line in lines]
    validation = sum(now - before for (before, _), (now, valid) in pairwise(told) if valid)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    tokens = [record["target_tokens"] for record in records if "target_tokens" in record][1:]
    last = max(now for now, _ in told)
    speeds = [float(speed) for speed in re.findall(r"tokens/s (\d+)", "\n".join(lines))][1:]
    saved = max(path.stat().st_mtime for path in (run / "checkpoints").glob("update-*/manifest.json"))
    return statistics.median(speeds), sum(tokens) / (max(saved, last) - told[0][0] - validation)


def yardstick(given: argparse.Namespace, size: str, precision: str) -> Speed:
    command = [sys.executable, str(HERE / "yardstick.py"), f"--data={given.work / 'data'}", f"--size={size}"]
    command += [f"--updates={given.updates}", f"--batch-tokens={given.batch_tokens}", f"--threads={given.threads}"]
    out, _ = finished([*command, f"--precision={precision}"])
    told = json.loads(out)
    return Speed(told["speed"], told["peak"])


def peer(given: argparse.Namespace, size: str, name: str) -> Speed:
    """Run a script of --bench; its last line of output is its median speed."""
    out, peak = finished(["bash", str(given.bench / "train.sh"), name, size, str(given.updates + 3)], given.work)
    numbers = re.findall(r"median_tok_s=(\d+)|tok/s (\d+)", out)
    return Speed(float(max(numbers[-1])), peak)


def systems(given: argparse.Namespace) -> dict[str, Callable[[str], Speed]]:
    """The systems of a round by name."""
    found: dict[str, Callable[[str], Speed]] = {}
    for precision in given.precision:
        end = "" if precision == "fp32" else f" {precision}"
        flags = [f"--precision={precision}", *given.flags]
        found[f"nmt{end}"] = lambda size, flags=flags: nmt(given, size, flags)  # type: ignore[misc]
        found[f"plain torch{end}"] = lambda size, precision=precision: yardstick(given, size, precision)  # type: ignore[misc]
    for name in given.peers if given.bench else ():
        found[name] = lambda size, name=name: peer(given, size, name)  # type: ignore[misc]
    return found


def compare(given: argparse.Namespace, size: str) -> None:
    """Print a table with a row for each system."""
    called = systems(given)
    rounds: list[dict[str, Speed]] = []
    for _ in range(given.rounds):
        rounds.append({name: call(size) for name, call in called.items()})
    rates = {precision: matmul_rate(given.threads, precision) for precision in ("fp32", "bf16")}
    reference = given.peers[0] if given.bench else "plain torch"
    told = ", ".join(f"{precision} {rate / 1e9:.0f} GFLOP/s" for precision, rate in rates.items())
    print(f"\n{size}: {given.rounds} alternating rounds, {given.threads} threads, products {told}")
    print(
        f"| system | target tokens/s (each round) | times {reference} | share of the floor | peak MB |\n"
        + "|---" * 5
        + "|"
    )
    flops = rounds[0]["nmt"].flops
    for name in called:
        speeds = [found[name].tokens for found in rounds]
        ratio = statistics.median(found[name].tokens / found[reference].tokens for found in rounds)
        peak = max(found[name].peak for found in rounds)
        rate = rates["bf16" if name.endswith("bf16") else "fp32"]
        share = f"{statistics.median(speeds) * flops / rate:.0%}"
        each = ", ".join(f"{speed:,.0f}" for speed in speeds)
        print(
            f"| {name} | {statistics.median(speeds):,.0f} ({each}) | {ratio:.2f} | {share} | {peak / 1e6:,.0f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", type=Path, help="training text in subwords; --bench has its own")
    parser.add_argument("--target", type=Path)
    parser.add_argument("--valid-source", type=Path, help="validation text")
    parser.add_argument("--valid-target", type=Path)
    parser.add_argument(
        "--user-updates", type=int, default=40, help="updates of a run with default options; 0 skips it"
    )
    parser.add_argument("--bench", type=Path, help="folder of scripts for other toolkits")
    parser.add_argument(
        "--peers", nargs="+", default=list(PEERS), help="systems of --bench; the first is the reference"
    )
    parser.add_argument("--size", nargs="+", choices=SHAPES, default=["tiny", "base"])
    parser.add_argument("--precision", nargs="+", choices=("fp32", "bf16"), default=["fp32"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("runs/bench-train"))
    given, given_flags = parser.parse_known_args()
    given.flags = given_flags
    given.work.mkdir(parents=True, exist_ok=True)
    source, target = given.source or given.work / "bpe/train.en", given.target or given.work / "bpe/train.de"
    dev = given.valid_source or given.work / "bpe/val.en", given.valid_target or given.work / "bpe/val.de"
    asked = ["prepare", "--source-lang=xx", "--target-lang=yy", f"--source={source}", f"--target={target}"]
    asked += [f"--valid-source={dev[0]}", f"--valid-target={dev[1]}"]
    asked += ["--tokenizer=none", "--subword=none", f"--output={given.work / 'data'}", "--overwrite", "--quiet"]
    subprocess.run([*NMT, *asked], check=True)
    for size in given.size:
        compare(given, size)
        if given.user_updates:
            training, wall = as_a_user(given, size, [f"--precision={given.precision[0]}", *given.flags])
            print(
                f"as a user runs it: {training:,.0f} while it trains, {wall:,.0f} with checkpoints: {wall / training - 1:+.1%}"
            )
    shutil.rmtree(given.work / "run", ignore_errors=True)


if __name__ == "__main__":
    main()
