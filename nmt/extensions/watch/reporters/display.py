"""A reporter that shows a run live on a terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from nmt import register
from nmt.extensions.watch.reporters.options import DisplayOptions
from nmt.report.run_status import RunStatus
from nmt.reporters.base import Reporter


@register("reporter", "display", DisplayOptions)
class Display(Reporter):
    """A live display, if stderr is a terminal."""

    order: ClassVar[int] = 9
    draws: ClassVar[bool] = True

    def __init__(self, options: Any, folder: Path) -> None:
        from nmt.extensions.watch import display  # imports rich, which only a terminal needs

        self._display = display.TrainingDisplay()

    def start(self) -> None:
        """See Reporter."""
        self._display.start()

    def record(self, values: Mapping[str, Any]) -> None:
        """See Reporter."""
        self._display.add(values)

    def examples(self, examples: Sequence[tuple[str, str, str]]) -> None:
        """See Reporter."""
        self._display.examples = examples

    def show(self, status: RunStatus) -> None:
        """See Reporter."""
        self._display.show(status)

    def close(self) -> None:
        """See Reporter."""
        self._display.stop()
