"""Previews: what `nmt train` shows instead of training, such as the time and memory that it would take.

A preview is active when one of its options differs from its default. Its options are options of `nmt train`, but are not saved
in the settings of a run.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar


class Preview(ABC):
    """What `nmt train` prints instead of training. A registered preview is built as `cls(options, parts)`, on each rank.

    options: of `nmt train`; parts: the chosen ones (nmt.cli.command.Parts)
    order: if several previews are active, the one with the lowest order is shown
    """

    order: ClassVar[int] = 0

    @abstractmethod
    def __init__(self, options: Any, parts: Any) -> None: ...

    @abstractmethod
    def values(self) -> dict[str, Any]:
        """What `--json` prints."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """The same values as lines of text."""
