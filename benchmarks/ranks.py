"""Compare the losses of the same updates on 1, 2 and 4 ranks, with both engines and several micro-batch sizes.

    python benchmarks/ranks.py --data DATA [--updates 200] [--ranks 2 4] [--max-tokens 1000 4000] [nmt train's flags]

Runs `nmt train` for each, without dropout, since its random draws depend on the rank. Prints the largest relative
difference of a loss from that on one rank. With the same ranks, engine and micro-batches (the last row of each kind,
run twice) it must be 0.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

TRAIN = [
    sys.executable,
    "-m",
    "nmt",
    "train",
    "--dropout=0",
    "--no-valid-bleu",
    "--best-by=loss",
    "--quiet",
    "--matmul=torch",
]


def losses(given: argparse.Namespace, ranks: int, engine: str, max_tokens: int) -> list[float]:
    """The loss of each update of a run."""
    run = given.work / "run"
    shutil.rmtree(run, ignore_errors=True)
    command = [
        *TRAIN,
        f"--data={given.data}",
        f"--output={run}",
        f"--max-updates={given.updates}",
        f"--devices={ranks}",
    ]
    command += [
        f"--engine={engine}",
        f"--max-tokens={max_tokens}",
        "--threads=1",
        "--valid-every=1000000u",
        *given.flags,
    ]
    subprocess.run([*command, "--save-every=1000000u"], check=True)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(run)
    return [record["loss"] for record in records if "loss" in record]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--max-tokens", type=int, nargs="+", default=[1000, 4000])
    parser.add_argument("--work", type=Path, default=Path("runs/ranks"))
    given, given.flags = parser.parse_known_args()
    alone = losses(given, 1, "ddp", given.max_tokens[0])
    print(f"{len(alone)} updates, losses from {alone[0]:.4f} to {alone[-1]:.4f} nats per token\n")
    print(
        "| ranks | engine | max tokens | largest relative difference from one rank | from its own repetition |\n"
        + "|---" * 5
        + "|"
    )
    for ranks in (1, *given.ranks):
        for engine in ("ddp",) if ranks == 1 else ("ddp", "fsdp"):
            for max_tokens in given.max_tokens:
                found = losses(given, ranks, engine, max_tokens)
                apart = max(abs(one / other - 1) for one, other in zip(found, alone, strict=True))
                again = "-"
                if max_tokens == given.max_tokens[-1]:
                    again = "0" if losses(given, ranks, engine, max_tokens) == found else "not the same"
                print(f"| {ranks} | {engine} | {max_tokens:,} | {apart:.1e} | {again} |", flush=True)


if __name__ == "__main__":
    main()
