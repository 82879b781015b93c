"""`nmt prepare`: make training data from parallel text."""

from collections.abc import Sequence
from typing import Any

from nmt import opt, options_class
from nmt.cli.command import Command, print_json
from nmt.cli.corpora import CORPUS_HELP, named_corpus
from nmt.data.options import PrepareOptions, set_label
from nmt.log import log


@options_class
class PrepareCommandOptions(PrepareOptions):
    corpus: tuple[str, ...] = opt((), CORPUS_HELP, group="Input and output", common=True)
    json: bool = opt(False, "print the report as JSON", group="Input and output")


def run(options: PrepareCommandOptions) -> None:
    """Make a data folder for training from parallel text, plain or compressed."""
    from nmt.cli.tables import table_lines  # both modules import rich and numpy
    from nmt.data.prepare import prepare

    report = prepare(options)
    for line in table_lines(_tokens_rows(report), right=range(2, 7)):
        log.info(line)
    for row in report["sets"]:
        log.info(_pairs_line(row))
        for side, alters in report["alters"].items():
            change = "were altered" if alters else "are not in NFC and were kept as they are"
            for file, counts in row[side]["altered"].items():
                shown = [f"{name} ({count:,})" for name, count in counts.items() if name != "lines"][:8]
                log.info(f"{file}: {counts['lines']:,} {side} lines {change}: {', '.join(shown)}")
    joint, source, target = (report["vocabulary"][key] for key in ("joint", "source", "target"))
    apart = f"vocabularies of {source:,} (source) and {target:,} (target) entries"
    log.info(f"one vocabulary of {source:,} entries" if joint else apart)
    if options.json:
        print_json(report)


def _tokens_rows(report: dict[str, Any]) -> list[Sequence[str]]:
    """A header, and a row with the token counts of each side of each set."""
    rows: list[Sequence[str]] = [("set", "side", "tokens", "per line", "longest", "per word", "unknown")]
    for row in report["sets"]:
        for side, name in (("source", set_label(row["kind"], row["name"])), ("target", "")):
            counts = row[side]
            numbers = f"{counts['tokens']:,}", f"{counts['tokens_per_sentence']:.2f}", f"{counts['longest']:,}"
            rows.append((name, side, *numbers, f"{counts['tokens_per_word']:.3f}", f"{counts['unknown_percent']:.3f}%"))
    return rows


def _pairs_line(row: dict[str, Any]) -> str:
    """A line about a set: how many pairs were read, kept and dropped, and its columns."""
    dropped = "".join(f", {count:,} dropped: {reason}" for reason, count in row["dropped"].items() if count)
    replaced, empty = row["lines_with_replaced_bytes"], row["pairs_with_an_empty_side"]
    columns = ", ".join(f"{name} ({kind})" for name, kind in row.get("columns", {}).items())
    corpora = ", ".join(f"{name} {pairs:,}" for name, pairs in row.get("corpora", []))
    notes = [
        f"{replaced:,} lines with invalid UTF-8, fixed" if replaced else "",
        f"{empty:,} with an empty side" if empty else "",
        f"columns: {columns}" if columns else "",
        f"corpora: {corpora}" if corpora else "",
    ]
    counts = f"{set_label(row['kind'], row['name'])}: {row['read']:,} pairs read, {row['kept']:,} kept{dropped}"
    return "; ".join(filter(None, [counts, *notes]))


COMMAND = Command(
    "prepare",
    PrepareCommandOptions,
    run,
    positional=("corpus...",),
    inferred=("source_lang", "target_lang"),
    base=named_corpus,
    group="prepare",
    examples=(
        "nmt prepare corpus.en corpus.de --valid dev --output data",
        "nmt prepare --source-lang en --target-lang de --train a b --valid dev -o data",
        "nmt prepare talks.en talks.de --hold-out 100 --vocabulary model -o talks",
    ),
    headings=(
        "Input and output",
        "Languages",
        "Subwords and vocabulary",
        "Text",
        "Held-out data",
        "Faulty lines",
        "Speed and memory",
    ),
)
