"""`nmt prepare`: training data from parallel text."""

import json
import sys
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from nmt.cli.command import Command
from nmt.data.prepare import PrepareOptions, prepare
from nmt.log import log
from nmt.options import opt


@dataclass(frozen=True, kw_only=True)
class PrepareCommandOptions(PrepareOptions):
    json: bool = opt(False, "print the report as JSON")


def run(options: PrepareCommandOptions) -> None:
    """Prepare, and tell what happened on stderr."""
    report = prepare(options)
    log.table(_sets_table(report))
    log.info(_vocabulary_line(report))
    if options.json:
        sys.stdout.write(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def _sets_table(report: dict[str, Any]) -> Table:
    """A row for each side of each set."""
    table = Table()
    for heading in ("set", "read", "kept", "dropped", "side", "tokens", "a sentence", "longest", "a word", "unknown"):
        table.add_column(heading, justify="left" if heading in ("set", "dropped", "side") else "right")
    for row in report["sets"]:
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in row["dropped"].items() if count) or "none"
        name = row["name"] if row["kind"] == "train" else f"{row['kind']} {row['name']}"
        for side, about in (("source", (name, f"{row['read']:,}", f"{row['kept']:,}", dropped)), ("target", ("",) * 4)):
            found = row[side]
            counts = f"{found['tokens']:,}", f"{found['tokens_per_sentence']:.2f}", f"{found['longest']:,}"
            shares = f"{found['tokens_per_word']:.3f}", f"{found['unknown_percent']:.3f}%"
            table.add_row(*(Text(cell) for cell in (*about, side, *counts, *shares)))
    return table


def _vocabulary_line(report: dict[str, Any]) -> str:
    found = report["vocabulary"]
    if found["joint"]:
        return f"one vocabulary of {found['source']:,} entries"
    return f"vocabularies of {found['source']:,} (source) and {found['target']:,} (target) entries"


COMMAND = Command("prepare", "Make prepared data of parallel text, plain or gzip.", PrepareCommandOptions, run)
