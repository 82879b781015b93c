"""`nmt train`: train a model on prepared data, or go on where the last run stopped."""

from nmt.cli.command import Command, Parts
from nmt.train.run import TrainOptions
from nmt.train.trainer import train


def run(options: TrainOptions, parts: Parts) -> None:
    train(options, parts)


COMMAND = Command(
    "train",
    "Train a model on prepared data; a run that is there goes on, bit for bit.",
    TrainOptions,
    run,
    kinds=("model", "criterion", "optimizer", "schedule", "decoder"),
)
