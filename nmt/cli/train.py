"""`nmt train`: train a model on prepared data, or go on where the last run stopped."""

import json
import sys

import torch

from nmt.cli.command import Command, Parts
from nmt.cli.launch import launch
from nmt.device import choose_device
from nmt.dist import World
from nmt.errors import UserError
from nmt.log import log
from nmt.train.run import TrainOptions
from nmt.train.trainer import development_set, train, training_data


def run(options: TrainOptions, parts: Parts) -> int:
    """Train, and say as JSON where the run stands when that is asked for."""
    world = World.of_environment()
    if options.devices > 1 and world.size == 1:
        development_set(options, training_data(options))  # what is wrong with them is told once
        return launch(options.devices, ["train", *parts.argv, *_of_each(options)])
    log.quiet |= not world.leads
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


def _of_each(options: TrainOptions) -> list[str]:
    """Flags that each of several ranks gets. Raises UserError when there are not as many devices."""
    device = choose_device(options.device)
    if device.type == "cuda":
        if ":" in options.device or options.devices > torch.cuda.device_count():
            found = f"torch sees {torch.cuda.device_count()} of them here, and each rank takes its own"
            raise UserError(f"--devices {options.devices} with --device {options.device}: {found}")
        return []
    threads = max(1, torch.get_num_threads() // options.devices)
    return [] if options.threads is not None else [f"--threads={threads}"]


COMMAND = Command(
    "train",
    "Train a model on prepared data; a run that is there goes on, bit for bit.",
    TrainOptions,
    run,
    kinds=("model", "criterion", "optimizer", "schedule", "decoder"),
)
