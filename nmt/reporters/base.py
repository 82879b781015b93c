"""Reporters receive the log lines and numbers of a training run. They run only on the first rank.

A reporter is active if one of its options differs from its default, or if its options class says so through `is_active`. Its
options are options of `nmt train`. metrics.jsonl is not written by a reporter, because checkpoints store its length so that a
resumed run can truncate it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from nmt.report.run_status import RunStatus


class Reporter:
    """Receives what a training run reports. A registered reporter is built as `cls(options, folder)`.

    options: options of `nmt train`
    folder: folder of the run
    order: reporters with a lower order receive each report first
    draws: whether it shows the numbers on the screen itself, in place of log lines
    """

    order: ClassVar[int] = 0
    draws: ClassVar[bool] = False

    def __init__(self, options: Any, folder: Path) -> None:
        """Raises UserError if a package that it needs is not installed."""

    def start(self) -> None:
        """Start reporting. The files of the run are already open."""

    def line(self, text: str, on_screen: bool) -> None:
        """Receive a log line with its time. on_screen: whether to print it; False if a reporter draws its numbers"""

    def record(self, values: Mapping[str, Any]) -> None:
        """Receive the record of an update or a validation from metrics.jsonl: numbers by name, or None if not finite."""

    def numbers(self, update: int, values: Mapping[str, float]) -> None:
        """Receive the numbers of a log line by name, or those of a validation, with names that start with `valid/`."""

    def examples(self, examples: Sequence[tuple[str, str, str]]) -> None:
        """Receive a few examples of a validation: (source, translation, reference)."""

    def update(self, run: Any, data: Any) -> None:
        """Called after each update of a run.

        run: the run (nmt.train.run.Run), which must not be changed
        data: the update's data on this rank (nmt.data.loader.UpdateBatches)
        """

    def show(self, status: RunStatus) -> None:
        """Receive the state of the run, at most once per second. Called only if the reporter draws."""

    def close(self) -> None:
        """Called at the end of training."""
