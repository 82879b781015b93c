"""Linear warm-up, then half a cosine down to the last update of the run (Loshchilov and Hutter, 2017)."""

import math

from nmt import register
from nmt.schedules.base import Decay, DecayOptions


@register("schedule", "cosine", DecayOptions)
class CosineDecay(Decay):
    """Linear growth to lr, then half a cosine over the rest of the run."""

    name = "cosine"

    def remaining(self, done: float) -> float:
        return (1 + math.cos(math.pi * done)) / 2
