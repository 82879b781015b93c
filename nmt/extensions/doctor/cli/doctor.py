"""`nmt doctor`: find faults in a parallel corpus."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Literal

from nmt.artefact import MANIFEST
from nmt.cli.command import Command, print_json, print_lines
from nmt.cli.corpora import corpus_files, corpus_words, named_corpus
from nmt.cli.settings import Layer
from nmt.cli.tables import table_lines
from nmt.errors import ArtefactError, InputError, quoted
from nmt.extensions.doctor.doctor import DoctorOptions, DoctorReport, SetReport, doctor
from nmt.extensions.doctor.findings import SEVERITIES, Finding, worst
from nmt.extensions.watch.pictures.figures import Bars, bar_chart, check_matplotlib, text_bars
from nmt.extensions.watch.pictures.page import html_page, html_table
from nmt.files import write_output
from nmt.log import log
from nmt.options import COMMAND_LINE, opt, options_class
from nmt.storages.base import text_exists

HEADER = ("severity", "set", "side", "what", "count", "share")


@options_class
class DoctorCommandOptions(DoctorOptions):
    corpus: tuple[str, ...] = opt(
        (), "corpus.en corpus.de, a prefix, or a data folder", group="Input and output", common=True
    )
    json: bool = opt(False, "print the report as JSON", group="Report", common=True)
    html: str | None = opt(
        None, "also write the report with charts to this file", group="Report", common=True, metavar="FILE"
    )
    fail_on: Literal["error", "warning", "never"] = opt(
        "error", "lowest severity that leads to exit status 3", group="Report", common=True, metavar="SEVERITY"
    )


def run(options: DoctorCommandOptions) -> int:
    """Find faults in a parallel corpus, given as text files or as a data folder.

    Exits with status 3 if any finding is at least as severe as --fail-on.
    """
    if options.html is not None:
        check_matplotlib("--html")
    if options.corpus and options.data is not None and not Path(options.data).exists():
        raise ArtefactError(
            f"{quoted(options.data)}: no such data folder, and no files such as {quoted(options.data)}.en"
        )
    report = doctor(options)
    if options.corpus and options.source:
        other = " (to swap them, name both files, source first)" if len(options.corpus) == 1 else ""
        log.info(
            f"source ({options.source_lang}): {quoted(options.source[0])}; "
            f"target ({options.target_lang}): {quoted(options.target[0])}{other}"
        )
    if options.json:
        print_json(report.to_json())
    else:
        print_lines(_lines(report))
    if options.html is not None:
        write_output(Path(options.html), _page(report).encode())
        log.info(f"wrote the report to {quoted(options.html)}")
    severity = worst(report.findings)
    if severity is None or options.fail_on == "never":
        return 0
    return InputError.code if SEVERITIES.index(severity) <= SEVERITIES.index(options.fail_on) else 0


def _lines(report: DoctorReport) -> Iterator[str]:
    """The report as lines: the sizes of each set, the findings with examples, and the histograms of the first set."""
    for examined in report.sets:
        yield from _sizes(examined)
    yield ""
    yield from _findings(report.findings)
    for examined in report.sets[:1]:  # the histograms of the other sets are in the JSON and HTML reports
        for name, rows in examined.lengths.items():
            yield from ("", _title(examined, name), *(f"  {line}" for line in text_bars(_without_empty_ends(rows))))


def _without_empty_ends(rows: Bars) -> Bars:
    """A histogram without empty rows at either end."""
    counted = [i for i, (_, count) in enumerate(rows) if count]
    return rows[counted[0] : counted[-1] + 1] if counted else rows


def _sizes(examined: SetReport) -> Iterator[str]:
    is_sample = examined.examined != examined.pairs
    sample = f", {examined.examined:,} of them examined (repetitions are found only among these)" if is_sample else ""
    correlation = examined.correlation
    related = "" if correlation is None else f"; correlation of the lengths {correlation:.2f}"
    yield f"{examined.label}: {examined.pairs:,} pairs{sample}{related}"
    for side, counts in examined.sides.items():
        text = f"{counts['words']:,} words, {counts['words'] / max(examined.examined, 1):.1f} per line"
        if counts["tokens"] is not None:
            text += f"; {counts['tokens']:,} tokens, {counts['tokens_per_word'] or 0:.2f} per word"
        if unknown := counts["characters_out_of_vocabulary"]:
            text += "; out of vocabulary: " + " ".join(f"{quoted(c)} ({count:,})" for c, count in unknown.items())
        yield f"  {side}: {text}"


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    """A table with one row per finding, followed by its examples and the advice."""
    if not findings:
        yield "nothing found"
        return
    counts = [(severity, sum(finding.severity == severity for finding in findings)) for severity in SEVERITIES]
    yield "found: " + ", ".join(f"{n} {name}{'s' if n > 1 else ''}" for name, n in counts if n)
    header, *lines = table_lines([HEADER, *map(_cells, findings)], right=(4, 5))
    yield header
    for finding, line in zip(findings, lines, strict=True):
        yield line
        yield from (f"    {quoted(example.place)}: {example.text}" for example in finding.examples)
        yield f"    -> {finding.advice}"


def _cells(finding: Finding) -> tuple[str, ...]:
    count, share = f"{finding.count:,}", f"{100 * finding.share:.2f} %"
    return finding.severity, finding.set, finding.side, finding.title, count, share


def _title(examined: SetReport, name: str) -> str:
    """The title of a histogram."""
    if name == "ratio":
        return f"{examined.label}: number of pairs by ratio of target to source length ({examined.unit})"
    return f"{examined.label}: number of {name} lines by length ({examined.unit})"


def _page(report: DoctorReport) -> str:
    """The report as a web page."""
    rows = []
    for finding in report.findings:
        severity, *cells = map(escape, _cells(finding))
        examples = "".join(
            f"<br><code>{escape(quoted(example.place))}: {escape(example.text)}</code>" for example in finding.examples
        )
        cells[2] += f"{examples}<br>{escape(finding.advice)}"
        rows.append((f'<span class="{severity}">{severity}</span>', *cells))
    sizes = [f"<p>{'<br>'.join(escape(line.strip()) for line in _sizes(examined))}</p>" for examined in report.sets]
    table = html_table(HEADER, rows) if rows else "<p>nothing found</p>"
    charts = [
        bar_chart(_title(examined, name), bars) for examined in report.sets for name, bars in examined.lengths.items()
    ]
    return html_page("nmt doctor", [*sizes, table, *charts])


def corpus_or_data(given: Mapping[str, Any]) -> Layer | None:
    """The settings that the positional arguments (a data folder or a corpus) stand for. given: all other settings"""
    words = corpus_words(given)
    if len(words) == 1:
        path, files = Path(words[0]), corpus_files(Path(words[0]))
        is_corpus = text_exists(path) or files or (given.get("source_lang") and given.get("target_lang"))
        if (path / MANIFEST).exists() or not is_corpus or (path.is_dir() and not files):
            return Layer(COMMAND_LINE, {"data": words[0]})
    return named_corpus(given, needs_direction=False)


COMMAND = Command(
    "doctor",
    DoctorCommandOptions,
    run,
    positional=("corpus...",),
    greedy=False,
    base=corpus_or_data,
    group="prepare",
    examples=(
        "nmt doctor corpus.en corpus.de",
        "nmt doctor corpus.en corpus.de --valid dev --html report.html",
        "nmt doctor data --json > report.json",
    ),
)
