"""Reporters: what receives the lines and numbers that a training reports. They run on the first rank alone.

A reporter is active when one of its options differs from its default, or when the `is_active` of its options class says
so. Its options are options of `nmt train`. metrics.jsonl is none of them: a checkpoint holds its length,
so that a resumed run cuts it back.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from nmt.report.run_status import RunStatus


class Reporter:
    """Receives what a training reports. A registered reporter is built as `cls(options, folder)`.

    options, folder: of `nmt train`, and of the run
    order: the order in which reporters receive a report, from the lowest on
    draws: whether it shows the numbers on the screen, where their log lines are left out then
    """

    order: ClassVar[int] = 0
    draws: ClassVar[bool] = False

    def __init__(self, options: Any, folder: Path) -> None:
        """Raises UserError for a package that is not installed."""

    def start(self) -> None:
        """Start, when the files of the run are open."""

    def line(self, text: str, on_screen: bool) -> None:
        """A log line, with its time. on_screen: whether no other reporter draws its numbers"""

    def record(self, values: Mapping[str, Any]) -> None:
        """An update or a validation, as metrics.jsonl has it: numbers by name, null where they are not finite."""

    def numbers(self, update: int, values: Mapping[str, float]) -> None:
        """The numbers of a log line by name, or of a validation, where `valid/` stands before each."""

    def examples(self, examples: Sequence[tuple[str, str, str]]) -> None:
        """A few examples of a validation: (source, translation, reference)."""

    def update(self, run: Any, data: Any) -> None:
        """An update was made of a run (nmt.train.run.Run), which is only to be looked at.

        data: that of the update on this rank (nmt.data.loader.UpdateBatches)
        """

    def show(self, status: RunStatus) -> None:
        """The state of the run, at most once a second; only for one that draws."""

    def close(self) -> None:
        """The training is over."""
