"""`nmt clean`: remove the faulty pairs from a parallel corpus, rule by rule."""

from collections.abc import Iterator
from functools import partial

from nmt.cli.command import Command, print_json, print_lines
from nmt.cli.corpora import named_corpus
from nmt.cli.tables import table_lines
from nmt.errors import quoted
from nmt.extensions.doctor.clean import CleanOptions, CleanReport, clean_corpus
from nmt.extensions.doctor.findings import CHECKS
from nmt.log import log
from nmt.options import opt, options_class

RULE_HEADER = ("rule", "removed", "share", "what it removes")


@options_class
class CleanCommandOptions(CleanOptions):
    corpus: tuple[str, ...] = opt(
        (), "corpus.en corpus.de, or their common prefix", group="Input and output", common=True
    )
    json: bool = opt(False, "print the report as JSON", group="Report", common=True)


def run(options: CleanCommandOptions) -> None:
    """Remove the faulty pairs from a parallel corpus and report how many pairs each rule removed.

    The other pairs are copied unchanged and in order.
    """
    report = clean_corpus(options)
    if options.json:
        print_json(report.to_json())
    else:
        print_lines(_lines(report))
    if not report.kept:
        log.warn("no pairs are left, because every pair breaks a rule (are --source-lang and --target-lang correct?)")


def _lines(report: CleanReport) -> Iterator[str]:
    """The totals, and a table with one row per rule, followed by its examples."""
    removed = report.read - report.kept
    yield f"{report.read:,} pairs read, {report.kept:,} kept, {removed:,} removed ({100 * removed / report.read:.2f} %)"
    rows = [
        (rule, f"{count:,}", f"{100 * count / report.read:.2f} %", CHECKS[rule].title)
        for rule, count in report.removed.items()
    ]
    header, *lines = table_lines([RULE_HEADER, *rows], right=(1, 2))
    yield header
    for rule, line in zip(report.removed, lines, strict=True):
        yield line
        yield from (f"    {quoted(example.place)}: {example.text}" for example in report.examples.get(rule, ()))


COMMAND = Command(
    "clean",
    CleanCommandOptions,
    run,
    positional=("corpus...",),
    base=partial(named_corpus, needs_direction=False),
    group="prepare",
    examples=(
        "nmt clean corpus.en corpus.de --dry-run",
        "nmt clean corpus.en corpus.de --output cleaned --rejected rejected.tsv",
        "nmt clean corpus.en corpus.de --output cleaned --keep duplicate-pairs",
    ),
)
