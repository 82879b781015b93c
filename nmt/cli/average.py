"""`nmt average`: average checkpoints into a model."""

import math
from typing import Final

from nmt.cli.command import Command, Parts, print_json, print_lines
from nmt.errors import one_line
from nmt.train.options import AverageOptions

MORE_WORDS: Final = "--checkpoint A B averages the named checkpoints, and --output sets the model folder to write"


def run(options: AverageOptions, parts: Parts) -> None:
    """Average checkpoints into a model folder."""
    from nmt.train.averaging import average

    names, scores = average(options, parts)
    if options.json:
        rows = {
            name: {key: value if math.isfinite(value) else None for key, value in row.items()}
            for name, row in scores.items()
        }
        print_json({"output": one_line(options.output), "averaged": names, "scores": rows})
        return
    print_lines(f"{name}\tloss {row['loss']:.4f} nats/token\tppl {row['ppl']:.4f}" for name, row in scores.items())


COMMAND = Command(
    "average",
    AverageOptions,
    run,
    kinds=("criterion",),
    positional=("run",),
    more_words=MORE_WORDS,
    group="train",
    examples=(
        "nmt average run --output model --last 3",
        "nmt average run --output model --best 3",
        "nmt average run --output model --last 5 --score data",
    ),
)
