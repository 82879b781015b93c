"""Length filter: the training pairs that are left out, and the reason for each."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# In the order of the checks: a pair is counted under the first reason that holds for it.
REASONS: Final = ("bad bytes", "empty", "too short", "too long", "ratio", "duplicate")
KEPT: Final = -1  # in place of the index of a reason


@dataclass(frozen=True)
class LengthFilter:
    """Bounds of the lengths of a pair, in tokens after subword splitting, the end symbol not counted.

    min_length: tokens of the shorter side, at least
    max_length: tokens of the longer side, at most; 0 for no maximum
    max_ratio: longer side by shorter side, at most; 0 for no maximum
    """

    min_length: int = 1
    max_length: int = 256
    max_ratio: float = 0.0

    def reasons(self, source: NDArray[Any], target: NDArray[Any]) -> NDArray[np.int8]:
        """(N,) the index into REASONS of why each pair is left out, or KEPT. source, target: (N,) lengths"""
        shorter = np.minimum(source, target).astype(np.int64)
        longer = np.maximum(source, target).astype(np.int64)
        checks = {
            "empty": shorter == 0,
            "too short": shorter < self.min_length,
            "too long": (longer > self.max_length) & (self.max_length > 0),
            "ratio": (longer > self.max_ratio * shorter) & (self.max_ratio > 0),
        }
        reasons = np.full(len(shorter), KEPT, dtype=np.int8)
        for reason in reversed(checks):
            reasons[checks[reason]] = REASONS.index(reason)
        return reasons
