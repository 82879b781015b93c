"""`nmt train`: train a model on prepared data, or go on where the last run stopped."""

import json
import sys

from nmt.cli.command import Command, Parts
from nmt.train.run import TrainOptions
from nmt.train.trainer import train


def run(options: TrainOptions, parts: Parts) -> None:
    """Train, and say as JSON where the run stands when that is asked for."""
    done = train(options, parts)
    if options.json:
        best = done.checkpoints.best()
        told = {
            "update": done.progress.update,
            "epochs": done.progress.position.epoch - 1,
            "best": str(best),
            "best_by": options.best_by,
            "score": None if best is None else done.checkpoints.score(best),
            "skipped": done.progress.skipped,
        }
        sys.stdout.write(json.dumps(told, indent=1) + "\n")


COMMAND = Command(
    "train",
    "Train a model on prepared data; a run that is there goes on, bit for bit.",
    TrainOptions,
    run,
    kinds=("model", "criterion", "optimizer", "schedule", "decoder"),
)
