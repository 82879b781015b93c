"""`nmt train`: train a model on prepared data, or continue a run."""

import sys

from nmt.cli.command import DEFAULTS, Command, Parts, print_json
from nmt.dist import World
from nmt.log import log
from nmt.train.options import TrainOptions


def run(options: TrainOptions, parts: Parts) -> int:
    """Train a model on prepared data; an existing run is continued, bit for bit."""
    from nmt.cli.launch import launch  # these import torch
    from nmt.train.dry_run import dry_run_of
    from nmt.train.setup import open_data
    from nmt.train.trainer import train

    world = World.from_environment()
    if options.devices > 1 and world.size == 1:
        open_data(options)  # errors of the data are printed once
        after = "the same command goes on from the newest checkpoint"
        return launch(options.devices, options.device, options.threads, ["train", *parts.argv], after)
    log.quiet |= not world.leads
    if options.dry_run:
        estimate = dry_run_of(options, parts)
        if world.leads:
            if options.json:
                print_json(vars(estimate))
            else:
                sys.stdout.writelines(f"{line}\n" for line in estimate.lines())
        return 0
    done = train(options, parts)
    if options.json and world.leads:
        best = done.checkpoints.best()
        score = None if best is None else done.checkpoints.score(best)
        sign = 1.0 if done.validation is None else done.validation.sign(done.progress.judged_by)
        state = {
            "update": done.progress.update,
            "epochs": done.progress.position.epoch - 1,
            "best": None if best is None else str(best),
            "best_by": done.progress.judged_by,
            "score": None if score is None else sign * score,
            "skipped": done.progress.skipped,
        }
        print_json(state)
    return 0


COMMAND = Command("train", TrainOptions, run, kinds=tuple(DEFAULTS), preload=("torch",))
