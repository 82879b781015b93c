"""The interfaces for evaluations, and for checks of the texts before an evaluation.

A registered evaluation is built as `cls(options)` if one of its options is set. `options` are the options of `nmt evaluate`;
they are also an instance of the evaluation's options class. Without an active evaluation, each metric prints a score. Registered
checks are built in the same way, and all of them run. `nmt train` builds checks with its own options, and uses only `doubts`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nmt.metrics.base import Lines, Metric, References


@dataclass(frozen=True)
class System:
    """A system's output, to be scored.

    name: name of the file or model
    decoder: signature of the search that produced the lines; None if they come from a file
    language: language of the lines; None if only the file names indicate it
    num_failed: number of lines that could not be translated
    """

    name: str
    lines: Sequence[str]
    decoder: str | None = None
    language: str | None = None
    num_failed: int = 0


class Evaluation(ABC):
    """Decides what is printed about the systems.

    order: if several evaluations are active, the one with the lowest order is used
    uses_metrics: whether the evaluation uses the metrics of --metrics; if not, it receives none
    task: label of the progress bar
    changes: changes that checks made to the texts, appended to each signature, such as `|unicode:nfc`
    """

    order: ClassVar[int] = 0
    uses_metrics: ClassVar[bool] = True
    task: str = "computing scores"
    changes: str = ""

    def __init__(self, options: Any) -> None:
        self.options = options

    def check_language(self, language: str) -> None:  # noqa: B027 most evaluations have nothing to check
        """Raise UserError if a model's target language cannot be evaluated. Called before the translation."""

    @abstractmethod
    def text(
        self,
        systems: Sequence[System],
        references: References,
        sources: Lines | None,
        metrics: Sequence[tuple[str, Metric]],
    ) -> str:
        """The text to print: a table, or JSON if `options.json` is set. sources: the source lines, if known"""


class TextCheck:
    """Warns about texts that would give misleading scores, or changes the texts if its options say so."""

    def __init__(self, options: Any) -> None:
        self.options = options

    def compare_lengths(self, text: System, reference: System) -> None:
        """Raise an InputError that explains why two texts have different numbers of lines, if the reason is known."""

    def examine(self, systems: Sequence[System], references: Sequence[System]) -> None:
        """Warn about problems in the texts, naming their files or sets. Raises InputError if they cannot be scored."""

    def doubts(self, metrics: Sequence[Metric], references: References) -> Iterator[str]:
        """Warnings that explain why scores with these references would mean little."""
        yield from ()

    def lines(self, lines: Lines) -> Lines:
        """The lines to score in place of `lines`."""
        return lines

    def signature(self) -> str:
        """The entry in score signatures for what `lines` changes, such as `unicode:nfc`; empty if it changes nothing."""
        return ""
