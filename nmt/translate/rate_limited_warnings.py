"""Counting lines of one sort, of which only the first are worth a message."""

from collections.abc import Callable
from typing import Final

NAMED: Final = 10


class RateLimitedWarnings:
    """Lines of one sort: the first ten are named in a message each, all are counted."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.count = 0
        self._tell = tell

    def add(self, message: str) -> None:
        self.count += 1
        if self.count <= NAMED:
            self._tell(message + (" (more such lines are counted, not named)" if self.count == NAMED else ""))
