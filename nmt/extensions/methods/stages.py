"""The stages of `--data-weights`: the proportions in which corpora are mixed, and for how long."""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from nmt.errors import quoted
from nmt.train.periods import parse_period


class Stage(NamedTuple):
    """The proportions of the corpora during one stage.

    weights: relative number of pairs by corpus name; other corpora are not used
    temperature: T; if set, the weights are the corpus sizes raised to the power 1/T
    updates, epochs: last update or epoch of the stage; both are None for the last stage
    """

    weights: Mapping[str, float] = {}
    temperature: float | None = None
    updates: int | None = None
    epochs: int | None = None

    def is_over(self, updates: int, epoch: int) -> bool:
        """Whether the stage has ended. updates: number of updates so far; epoch: epoch of the next update"""
        return (self.updates is not None and updates >= self.updates) or (
            self.epochs is not None and epoch > self.epochs
        )


def parse_stages(words: Sequence[str]) -> list[Stage]:
    """Parse `--data-weights`. A stage is NAME=WEIGHT... or temperature=T, then until=PERIOD except for the last stage.

    words: each may contain several items, separated by spaces or commas
    Raises ValueError for anything else.
    """
    stages: list[Stage] = []
    weights: dict[str, float] = {}
    for word in " ".join(words).replace(",", " ").split():
        name, _, value = word.partition("=")
        if name == "until":
            count, unit = 0.0, "m"
            with suppress(ValueError):
                count, unit = parse_period(value)
            if unit == "m":
                ends = "must end after a given number of updates or epochs (until=500u, until=1e)"
                raise ValueError(f"--data-weights {quoted(word)}: a stage {ends}")
            stages.append(_stage(weights, int(count), unit))
            before = [stage for stage in stages[:-1] if (stage.updates is None) == (unit == "e")][-1:]
            if before and (before[0].updates or before[0].epochs or 0) >= count:
                raise ValueError(f"--data-weights {quoted(word)}: must be later than the end of the previous stage")
            weights = {}
            continue
        number = float(value) if re.fullmatch(r"\d+\.?\d*|\.\d+", value, re.ASCII) else math.nan
        if not name or not math.isfinite(number) or (name == "temperature" and not number):
            raise ValueError(
                f"--data-weights '{quoted(word)}': must be NAME=WEIGHT with a non-negative number, "
                "temperature=T with a positive number, or until=PERIOD"
            )
        if name in weights:
            raise ValueError(f"--data-weights {quoted(word)}: '{quoted(name)}' already has a weight in this stage")
        weights[name] = number
    if weights or stages:
        stages.append(_stage(weights))
    return stages


def _stage(weights: dict[str, float], count: int | None = None, unit: str = "") -> Stage:
    temperature = weights.get("temperature")
    if not any(weights.values()) or (temperature is not None and len(weights) > 1):
        end = f"the stage until={count}{unit}" if count else "the last stage (without until)"
        raise ValueError(f"--data-weights: {end} must have a positive weight, or a temperature and no weights")
    updates, epochs = (count if unit == own else None for own in "ue")
    return Stage({} if temperature is not None else weights, temperature, updates, epochs)
