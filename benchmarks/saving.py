"""Measure the cost of saving: one run saves every 20 updates; the 5 updates after a save are compared with the 5 before.

    python benchmarks/saving.py --data prepared-data [--preset transformer-small] [--saves 60] [--threads 1]

The cost of a save is the time of the 5 updates after it, including its copy and the work of its thread, minus that of
the 5 before it, per target token, since updates differ in size. The thread must have ended by then.
"""

import argparse
import tempfile
import time
from functools import wraps
from pathlib import Path
from statistics import mean, median, quantiles, stdev
from typing import Any

from nmt.cli.main import run
from nmt.train import saving, trainer
from nmt.train.update import Updater

PERIOD, SPAN = 20, 5  # updates between saves, and per measurement
USUAL_PERIOD = 50  # quantile of the printed share
FLAGS = [
    "--schedule=constant",
    "--lr=1e-4",
    "--no-valid-bleu",
    "--valid-every=1000000u",
    "--best-by=loss",
    "--keep-last=3",
    f"--save-every={PERIOD}u",
    "--quiet",
]


class Times:
    """The times of a run.

    ends: when each update ended, in seconds; tokens: its target tokens
    waits: seconds that the loop waited for each save; threads: seconds that its thread worked
    """

    def __init__(self) -> None:
        self.ends, self.tokens = list[float](), list[float]()
        self.waits, self.threads = list[float](), list[float]()

    def added(self, save_at: int) -> float:
        """The seconds that the save after this update adds to the next updates."""
        before, after = (range(start, start + SPAN) for start in (save_at - SPAN, save_at))
        seconds = [self.ends[span.stop - 1] - self.ends[span.start - 1] for span in (before, after)]
        tokens = [sum(self.tokens[i] for i in span) for span in (before, after)]
        return seconds[1] - seconds[0] * tokens[1] / tokens[0]


def timed(arguments: list[str]) -> Times:
    """Train and record the times."""
    times = Times()
    update, write = Updater.__call__, saving._write

    @wraps(update)
    def watched_update(*given: Any, **named: Any) -> Any:
        stats = update(*given, **named)
        times.ends.append(time.monotonic())
        times.tokens.append(stats.tokens)
        return stats

    def timing(function: Any, seconds: list[float]) -> Any:
        def call(*given: Any, **named: Any) -> None:
            began = time.monotonic()
            function(*given, **named)
            seconds.append(time.monotonic() - began)

        return call

    Updater.__call__ = watched_update  # type: ignore[method-assign]
    trainer.save, saving._write = timing(trainer.save, times.waits), timing(write, times.threads)
    if code := run(arguments):
        raise SystemExit(code)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--preset", default="transformer-small")
    parser.add_argument("--saves", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    updates = PERIOD * (given.saves + 1)
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["train", f"--data={given.data}", f"--output={folder}/run", f"--preset={given.preset}", *FLAGS]
        times = timed([*arguments, f"--max-updates={updates}", f"--threads={given.threads}"])
    update = (times.ends[-1] - times.ends[PERIOD - 1]) / (updates - PERIOD)
    added = [times.added(save_at) for save_at in range(PERIOD, updates, PERIOD)]
    low, middle, high = quantiles(added)
    print(f"{given.preset}, {given.saves} saves, an update takes {update:.3f} s")
    print(f"a save: the loop waits {median(times.waits[:-1]):.4f} s, its thread works {median(times.threads):.3f} s")
    print(
        f"it adds {middle:.4f} s ({low:.4f} to {high:.4f}), mean {mean(added):.4f} +- {stdev(added) / len(added) ** 0.5:.4f}"
    )
    print(f"with a save every {USUAL_PERIOD} updates that is {mean(added) / (USUAL_PERIOD * update):.2%} of their time")


if __name__ == "__main__":
    main()
