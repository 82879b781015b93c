"""Which pairs are left out of the training data, and why."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# The order of the checks: a pair is counted under the first reason that holds for it.
REASONS: Final = ("bad bytes", "empty", "too short", "too long", "ratio", "duplicate")
KEPT: Final = -1


@dataclass(frozen=True)
class LengthFilter:
    """Lengths count tokens after subword splitting, without the end symbol.

    min_length, max_length: of each side; max_ratio: longer side by shorter side; 0 switches a maximum off
    """

    min_length: int = 1
    max_length: int = 256
    max_ratio: float = 0.0

    def reasons(self, source: NDArray[Any], target: NDArray[Any]) -> NDArray[np.int8]:
        """(N,) for each pair the index into REASONS of why it is left out, or KEPT. source, target: (N,) lengths."""
        shorter = np.minimum(source, target).astype(np.int64)
        longer = np.maximum(source, target).astype(np.int64)
        checks = {
            "empty": shorter == 0,
            "too short": shorter < self.min_length,
            "too long": (longer > self.max_length) & (self.max_length > 0),
            "ratio": (longer > self.max_ratio * shorter) & (self.max_ratio > 0),
        }
        found = np.full(len(shorter), KEPT, dtype=np.int8)
        for reason in reversed(checks):
            found[checks[reason]] = REASONS.index(reason)
        return found
