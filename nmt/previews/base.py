"""Previews: each shows something of a training in place of it, such as what it would take.

A preview is in use when one of its options has another value than its default. Its options are options of `nmt train`, but of
one call of it: the settings of a run do not have them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar


class Preview(ABC):
    """What `nmt train` prints in place of training. A registered preview is built as `cls(options, parts)`, on each rank.

    options: of `nmt train`; parts: the chosen ones (nmt.cli.command.Parts)
    order: the preview with the lowest order is shown, if several are asked for
    """

    order: ClassVar[int] = 0

    @abstractmethod
    def __init__(self, options: Any, parts: Any) -> None: ...

    @abstractmethod
    def values(self) -> dict[str, Any]:
        """What `--json` prints."""

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """The same as lines of text."""
