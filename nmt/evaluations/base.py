"""The interface of evaluations.

A registered evaluation is built as `cls(options)` when one of its options is given. The options are those of `nmt evaluate`,
which are an instance of its own options class too. Without one, each metric gives its score.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
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
    """

    order: ClassVar[int] = 0
    uses_metrics: ClassVar[bool] = True
    task: str = "computing scores"

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
