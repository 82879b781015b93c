"""A reporter: writes the loss and the learning rate of a run to a CSV file, RUN/my_reporter.csv.

nmt train --plugin my_reporter.py --my-reporter --data DATA --output RUN
nmt status RUN
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt import opt, options_class, register
from nmt.reporters.base import Reporter


@options_class
class MyReporterOptions:  # the reporter is in use when one of its options differs from its default
    my_reporter: bool = opt(False, "write losses to RUN/my_reporter.csv", group="Logging")


@register("reporter", "my-reporter", MyReporterOptions)
class MyReporter(Reporter):
    """One line for each logged update: its number, loss and learning rate."""

    def __init__(self, options: MyReporterOptions, folder: Path) -> None:
        self.path = folder / "my_reporter.csv"

    def record(self, values: Mapping[str, Any]) -> None:
        """Called for each log line and each validation, with the values that go to metrics.jsonl."""
        if "loss" in values and "lr" in values:  # CHANGE: what is written, and where
            with self.path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(f"{values['update']},{values['loss']},{values['lr']}\n")
