"""Linear warm-up, then a straight line down to the last update of the run."""

from nmt import register
from nmt.schedules.base import Decay, DecayOptions


@register("schedule", "linear", DecayOptions)
class LinearDecay(Decay):
    """Linear growth to lr, then linear decay over the rest of the run."""

    name = "linear"

    def remaining(self, done: float) -> float:
        return 1 - done
