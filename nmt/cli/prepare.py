"""`nmt prepare`: training data from parallel text."""

import json
import sys
from typing import Any

from rich.table import Table
from rich.text import Text

from nmt import opt, options_class
from nmt.cli.command import Command
from nmt.data.prepare import PrepareOptions, prepare
from nmt.data.sets import set_label
from nmt.log import log


@options_class
class PrepareCommandOptions(PrepareOptions):
    json: bool = opt(False, "print the report as JSON")


def run(options: PrepareCommandOptions) -> None:
    """Prepare the data, and log the counts to stderr."""
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
        for side, name in (("source", set_label(row["kind"], row["name"])), ("target", "")):
            counts = row[side]
            numbers = f"{counts['tokens']:,}", f"{counts['tokens_per_sentence']:.2f}", f"{counts['longest']:,}"
            shares = f"{counts['tokens_per_word']:.3f}", f"{counts['unknown_percent']:.3f}%"
            table.add_row(*(Text(cell) for cell in (name, side, *numbers, *shares)))
    return table


def _pairs_line(row: dict[str, Any]) -> str:
    """The number of pairs of a set that were read, kept and dropped, and its columns."""
    dropped = "".join(f", {count:,} dropped: {reason}" for reason, count in row["dropped"].items() if count)
    replaced, empty = row["lines_with_replaced_bytes"], row["pairs_with_an_empty_side"]
    columns = ", ".join(f"{name} ({kind})" for name, kind in row.get("columns", {}).items())
    notes = [
        f"{replaced:,} lines not UTF-8, mended" if replaced else "",
        f"{empty:,} with an empty side" if empty else "",
        f"columns: {columns}" if columns else "",
    ]
    counts = f"{set_label(row['kind'], row['name'])}: {row['read']:,} pairs read, {row['kept']:,} kept{dropped}"
    return "; ".join(filter(None, [counts, *notes]))


def _vocabulary_line(report: dict[str, Any]) -> str:
    vocabulary = report["vocabulary"]
    if vocabulary["joint"]:
        return f"one vocabulary of {vocabulary['source']:,} entries"
    return f"vocabularies of {vocabulary['source']:,} (source) and {vocabulary['target']:,} (target) entries"


COMMAND = Command("prepare", "Make prepared data of parallel text, plain or compressed.", PrepareCommandOptions, run)
