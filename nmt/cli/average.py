"""`nmt average`: the mean of checkpoints as a model folder."""

import json
import math
import sys
from collections.abc import Mapping, Sequence

from nmt.cli.command import Command, Parts
from nmt.errors import one_line
from nmt.train.options import AverageOptions


def run(options: AverageOptions, parts: Parts) -> None:
    """Average, and print the scores."""
    from nmt.train.averaging import average

    _show(options, *average(options, parts))


def _show(options: AverageOptions, names: Sequence[str], scores: Mapping[str, Mapping[str, float]]) -> None:
    if options.json:
        rows = {
            name: {key: value if math.isfinite(value) else None for key, value in row.items()}
            for name, row in scores.items()
        }
        result = {"output": one_line(options.output), "averaged": names, "scores": rows}
        sys.stdout.write(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        return
    for name, row in scores.items():
        sys.stdout.write(f"{name}\tloss {row['loss']:.4f} nats/token\tppl {row['ppl']:.4f}\n")


COMMAND = Command("average", "Average checkpoints into a model folder.", AverageOptions, run, kinds=("criterion",))
