"""`nmt train`: train a model on prepared data, or go on where the last run stopped."""

import json
import sys
from dataclasses import asdict

from nmt.cli.command import Command, Parts
from nmt.cli.launch import flags_of_each, launch
from nmt.dist import World
from nmt.log import log
from nmt.train.dry_run import dry_run_of
from nmt.train.run import TrainOptions
from nmt.train.setup import development_set, training_data
from nmt.train.trainer import train


def run(options: TrainOptions, parts: Parts) -> int:
    """Train, or say what training would be; as JSON where the run stands when that is asked for."""
    world = World.from_environment()
    if options.devices > 1 and world.size == 1:
        development_set(options, training_data(options))  # what is wrong with them is told once
        of_each = flags_of_each(options.devices, options.device, options.threads)
        return launch(
            options.devices, ["train", *parts.argv, *of_each], "the same command goes on from the newest checkpoint"
        )
    log.quiet |= not world.leads
    if options.dry_run:
        found = dry_run_of(options, parts)
        if world.leads:
            told = {**asdict(found), "hours": found.hours, "eflop": found.eflop}
            lines = [json.dumps(told, indent=1)] if options.json else found.lines()
            sys.stdout.writelines(f"{line}\n" for line in lines)
        return 0
    done = train(options, parts)
    if options.json and world.leads:
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
    return 0


COMMAND = Command(
    "train",
    "Train a model on prepared data; a run that is there goes on, bit for bit.",
    TrainOptions,
    run,
    kinds=("model", "criterion", "optimizer", "schedule", "decoder"),
)
