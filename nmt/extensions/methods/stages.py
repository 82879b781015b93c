"""The stages of `--data-weights`: how corpora are mixed, and until when."""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from nmt.errors import quoted
from nmt.train.periods import parse_period


class Stage(NamedTuple):
    """How the corpora are mixed for a while.

    weights: pairs of each corpus by name, in relation to one another; a corpus without one has none
    temperature: T of weights that are the sizes of the corpora to the power of 1/T, in place of `weights`
    updates, epochs: the last of the stage; neither for the last stage
    """

    weights: Mapping[str, float] = {}
    temperature: float | None = None
    updates: int | None = None
    epochs: int | None = None

    def is_over(self, updates: int, epoch: int) -> bool:
        """Whether it has ended. updates: made so far; epoch: of the next update"""
        return (self.updates is not None and updates >= self.updates) or (
            self.epochs is not None and epoch > self.epochs
        )


def parse_stages(words: Sequence[str]) -> list[Stage]:
    """The stages of `--data-weights`: NAME=WEIGHT..., or temperature=T, then until=PERIOD but for the last stage.

    words: each of one or more words between spaces or commas
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
                ends = "updates or epochs, which do not depend on the machine (until=500u, until=1e)"
                raise ValueError(f"--data-weights {quoted(word)}: must be {ends}")
            stages.append(_stage(weights, int(count), unit))
            before = [stage for stage in stages[:-1] if (stage.updates is None) == (unit == "e")][-1:]
            if before and (before[0].updates or before[0].epochs or 0) >= count:
                raise ValueError(f"--data-weights {quoted(word)}: must be after the end of the stage before")
            weights = {}
            continue
        number = float(value) if re.fullmatch(r"\d+\.?\d*|\.\d+", value, re.ASCII) else math.nan
        if not name or not math.isfinite(number) or (name == "temperature" and not number):
            raise ValueError(
                f"--data-weights '{quoted(word)}': must be NAME=WEIGHT with a number of at least 0, "
                "temperature=T above 0, or until=PERIOD"
            )
        if name in weights:
            raise ValueError(f"--data-weights {quoted(word)}: '{quoted(name)}' has a weight in this stage already")
        weights[name] = number
    if weights or stages:
        stages.append(_stage(weights))
    return stages


def _stage(weights: dict[str, float], count: int | None = None, unit: str = "") -> Stage:
    temperature = weights.get("temperature")
    if not any(weights.values()) or (temperature is not None and len(weights) > 1):
        end = f"the stage until={count}{unit}" if count else "the last stage, which has no until,"
        raise ValueError(f"--data-weights: {end} must have a weight above 0, or a temperature alone")
    updates, epochs = (count if unit == own else None for own in "ue")
    return Stage({} if temperature is not None else weights, temperature, updates, epochs)
