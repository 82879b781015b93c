"""Previews: what `nmt train` can print instead of training, such as the time and memory that it would need.

A preview is active if one of its options differs from its default. Its options are options of `nmt train`, but not part of a
run's settings.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar


class Preview(ABC):
    """What `nmt train` prints instead of training. A registered preview is built as `cls(options, parts)`, on each rank.

    options: options of `nmt train`
    parts: the chosen components (nmt.cli.command.Parts)
    order: if several previews are active, the one with the lowest order is printed
    """

    order: ClassVar[int] = 0

    @abstractmethod
    def __init__(self, options: Any, parts: Any) -> None: ...

    @abstractmethod
    def values(self) -> dict[str, Any]:
        """The values that `--json` prints."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """The same values as lines of text."""
