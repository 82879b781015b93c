"""Estimate the training time of the paper's four systems, here and on other GPUs, from measured speed.

    python benchmarks/budget.py --data en-de=DATA --data en-fr=DATA [--updates 3 --batch-tokens 6000] [nmt train's flags]

Trains each of base and big for a few updates on prepared data (with the task's vocabulary: 37,000 and 32,000; without
a validation set, on which each run would end) with `nmt train` itself, and ignores the first update. Method: days =
updates x 25,000 target tokens / measured target tokens/s. For other devices: days = counted FLOPs of the whole run /
(devices x peak x sustained share of the peak). The share is an assumption until it has been measured there,
so two are given. Validation and checkpoints are not included.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

UPDATE_TOKENS: Final = 25_000  # target tokens per update in the paper
UPDATES: Final = {"base": 100_000, "big": 300_000}
DAY: Final = 86_400


class Speed(NamedTuple):
    """The speed of a few updates. tokens: target tokens/s without padding; flops: counted FLOPs per target token"""

    tokens: float
    flops: float


def presets(task: str) -> dict[str, str]:
    return {"base": "transformer-base", "big": "transformer-big-en-fr" if task == "en-fr" else "transformer-big"}


def measured(data: Path, preset: str, given: argparse.Namespace, flags: list[str]) -> Speed:
    """The speed of `nmt train` after its first update."""
    run = given.work / "run"
    shutil.rmtree(run, ignore_errors=True)
    asked = [f"--data={data}", f"--output={run}", f"--preset={preset}", f"--max-updates={given.updates + 1}"]
    asked += [f"--batch-tokens={given.batch_tokens}", "--log-every=1u", "--no-valid-bleu", "--best-by=loss"]
    subprocess.run([sys.executable, "-m", "nmt", "train", *asked, *flags, "--quiet"], check=True)
    told = re.findall(r": Up\. \d+\S* .*tokens/s (\d+)", (run / "train.log").read_text())[1:]
    updates = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    updates = [record for record in updates if "target_tokens" in record]
    tokens = [record["target_tokens"] for record in updates[1:]]
    seconds = sum(count / float(speed) for count, speed in zip(tokens, told, strict=True))
    flops = (updates[-1]["eflop"] - updates[0]["eflop"]) * 1e18
    shutil.rmtree(run)
    return Speed(sum(tokens) / seconds, flops / sum(tokens))


def time_of(days: float) -> str:
    return f"{days:,.0f} days" if days >= 10 else f"{days:.1f} days" if days >= 1 else f"{24 * days:.1f} h"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", required=True, metavar="TASK=DATA", help="en-de or en-fr")
    parser.add_argument("--updates", type=int, default=3, help="measured updates, after a first one")
    parser.add_argument("--batch-tokens", type=int, default=6000, help="target tokens per measured update")
    parser.add_argument(
        "--peak", type=float, default=989, help="TFLOP/s of another device (%(default)s: H200, bf16, dense)"
    )
    parser.add_argument(
        "--share", type=float, nargs=2, default=(0.2, 0.4), help="lower and upper sustained share of the peak"
    )
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 8], help="numbers of devices")
    parser.add_argument("--work", type=Path, default=Path("runs/budget"))
    given, flags = parser.parse_known_args()
    less, more = given.share
    print(
        "| system | FLOPs a target token | EFLOP of the run | target tokens/s here | TFLOP/s here | the run here "
        + "".join(f"| on {count} x {given.peak:g} TFLOP/s, {less:.0%} to {more:.0%} of it " for count in given.devices)
        + "|\n"
        + "|---" * (6 + len(given.devices))
        + "|"
    )
    for task, data in (pair.split("=", 1) for pair in given.data):
        for size, preset in presets(task).items():
            speed = measured(Path(data), preset, given, flags)
            tokens = UPDATES[size] * UPDATE_TOKENS
            flops = tokens * speed.flops
            projected = [
                " to ".join(time_of(flops / (count * given.peak * 1e12 * share) / DAY) for share in (more, less))
                for count in given.devices
            ]
            here = f"{speed.tokens:,.0f} | {speed.tokens * speed.flops / 1e12:.3f} | {time_of(tokens / speed.tokens / DAY)}"
            print(
                f"| {task} {size} | {speed.flops:.3g} | {flops / 1e18:.2f} | {here} | {' | '.join(projected)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
