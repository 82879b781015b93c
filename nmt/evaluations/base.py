"""The interfaces of evaluations, and of checks of the texts before.

A registered evaluation is built as `cls(options)` when one of its options is given. The options are those of `nmt evaluate`,
which are an instance of its own options class too. Without one, each metric gives its score. Registered checks are built in the
same way, and all are asked. `nmt train` builds them with its own options, for `doubts` alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nmt.metrics.base import Lines, Metric, References


@dataclass(frozen=True)
class System:
    """The lines of a system, to be scored.

    name: file or model
    decoder: signature of the search that made the lines; None for those of a file
    language: of the lines; None if only the names of the files can tell
    num_failed: lines that could not be translated
    """

    name: str
    lines: Sequence[str]
    decoder: str | None = None
    language: str | None = None
    num_failed: int = 0


class Evaluation(ABC):
    """What is printed of systems.

    order: the first of several is taken
    uses_metrics: whether it is by the metrics of --metrics; if not, it gets none
    task: what it does, for the progress bar
    changes: what checks change in the texts, which each signature ends with: `|unicode:nfc`
    """

    order: ClassVar[int] = 0
    uses_metrics: ClassVar[bool] = True
    task: str = "computing scores"
    changes: str = ""

    def __init__(self, options: Any) -> None:
        self.options = options

    def check_language(self, language: str) -> None:  # noqa: B027 most have nothing to check
        """Raise UserError for the target language of a model that it cannot evaluate. Called before the translation"""

    @abstractmethod
    def text(
        self,
        systems: Sequence[System],
        references: References,
        sources: Lines | None,
        metrics: Sequence[tuple[str, Metric]],
    ) -> str:
        """What is printed: a table, or with `options.json` JSON. sources: the source lines, if they are known"""


class TextCheck:
    """Warns of texts whose scores would mislead, or changes them if its options ask for it."""

    def __init__(self, options: Any) -> None:
        self.options = options

    def compare_lengths(self, text: System, reference: System) -> None:
        """Raise an InputError that explains why two texts have different numbers of lines, where it is known."""

    def examine(self, systems: Sequence[System], references: Sequence[System]) -> None:
        """Warn of texts, each with the name of its file or set. Raises InputError if they cannot be scored."""

    def doubts(self, metrics: Sequence[Metric], references: References) -> Iterator[str]:
        """Reasons why a score with these references would mean little, as warnings."""
        yield from ()

    def lines(self, lines: Lines) -> Lines:
        """The lines that are scored in place of these."""
        return lines

    def signature(self) -> str:
        """What `lines` changes, for the signatures of scores: `unicode:nfc`; empty for nothing."""
        return ""
