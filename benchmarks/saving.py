"""What saving costs: the same updates with a checkpoint every 50 and with none, in turn, and the operations of one save.

    python benchmarks/saving.py --data prepared-data [--preset transformer-small] [--updates 300] [--rounds 3] [--threads 1]

A run's own minutes are compared, without its start: those between update 50 and the end.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from nmt.log import log

WARM_UP = 50  # updates that are not counted
FLAGS = [
    "--schedule=constant",
    "--lr=1e-4",
    "--no-valid-bleu",
    "--valid-every=1000000u",
    "--best-by=loss",
    "--keep-last=3",
    "--quiet",
]


def seconds(data: Path, preset: str, updates: int, save_every: int, threads: int, folder: Path) -> float:
    """The seconds of the updates after the warm-up."""
    minutes = []
    for end in (WARM_UP, WARM_UP + updates):
        arguments = [f"--data={data}", f"--output={folder / 'run'}", f"--preset={preset}", f"--max-updates={end}"]
        more = [f"--save-every={save_every}u", f"--threads={threads}", *FLAGS]
        subprocess.run([sys.executable, "-m", "nmt", "train", *arguments, *more], check=True)
        manifest = folder / f"run/checkpoints/update-{end}/manifest.json"
        minutes.append(json.loads(manifest.read_text())["minutes"])
    return 60 * (minutes[1] - minutes[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--preset", default="transformer-small")
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    rounds: list[tuple[float, float]] = []
    for number in range(given.rounds):
        with tempfile.TemporaryDirectory() as often, tempfile.TemporaryDirectory() as never:
            pair = [
                seconds(given.data, given.preset, given.updates, every, given.threads, Path(folder))
                for every, folder in ((WARM_UP, often), (10**6, never))
            ]
        rounds.append((pair[0], pair[1]))
        log.info(
            f"round {number + 1}: {pair[0]:.2f} s with a checkpoint every {WARM_UP} updates, {pair[1]:.2f} s with none"
        )
    ratios = [often / never for often, never in rounds]
    saved = given.updates // WARM_UP
    print(f"{given.preset}: {given.updates} updates with {saved} checkpoints take {median(ratios):.3f} times as long")


if __name__ == "__main__":
    main()
