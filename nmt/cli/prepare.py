"""`nmt prepare`: training data from parallel text."""

import json
import sys
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from nmt.cli.command import Command
from nmt.data.prepare import PrepareOptions, prepare
from nmt.errors import quoted
from nmt.log import log
from nmt.options import opt


@dataclass(frozen=True, kw_only=True)
class PrepareCommandOptions(PrepareOptions):
    json: bool = opt(False, "print the report as JSON")


def run(options: PrepareCommandOptions) -> None:
    """Prepare, and tell what happened on stderr."""
    report = prepare(options)
    log.table(_tokens_table(report))
    for row in report["sets"]:
        log.info(_pairs_line(row))
    log.info(_vocabulary_line(report))
    if options.json:
        sys.stdout.write(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def _tokens_table(report: dict[str, Any]) -> Table:
    """A row for each side of each set: its tokens."""
    table = Table(title="tokens", title_justify="left")
    for heading in ("set", "side", "all", "a line", "longest", "a word", "unknown"):
        table.add_column(heading, justify="left" if heading in ("set", "side") else "right", overflow="fold")
    for row in report["sets"]:
        for side, name in (("source", _name(row)), ("target", "")):
            found = row[side]
            counts = f"{found['tokens']:,}", f"{found['tokens_per_sentence']:.2f}", f"{found['longest']:,}"
            shares = f"{found['tokens_per_word']:.3f}", f"{found['unknown_percent']:.3f}%"
            table.add_row(*(Text(cell) for cell in (name, side, *counts, *shares)))
    return table


def _name(row: dict[str, Any]) -> str:
    return "train" if row["kind"] == "train" else f"{row['kind']} {quoted(row['name'])}"


def _pairs_line(row: dict[str, Any]) -> str:
    """What became of the pairs of a set."""
    dropped = "".join(f", {count:,} dropped: {reason}" for reason, count in row["dropped"].items() if count)
    replaced = (
        f"; {row['lines_with_replaced_bytes']:,} lines not UTF-8, mended" if row["lines_with_replaced_bytes"] else ""
    )
    empty = f"; {row['pairs_with_an_empty_side']:,} with an empty side" if row["pairs_with_an_empty_side"] else ""
    return f"{_name(row)}: {row['read']:,} pairs read, {row['kept']:,} kept{dropped}{replaced}{empty}"


def _vocabulary_line(report: dict[str, Any]) -> str:
    found = report["vocabulary"]
    if found["joint"]:
        return f"one vocabulary of {found['source']:,} entries"
    return f"vocabularies of {found['source']:,} (source) and {found['target']:,} (target) entries"


COMMAND = Command("prepare", "Make prepared data of parallel text, plain or compressed.", PrepareCommandOptions, run)
