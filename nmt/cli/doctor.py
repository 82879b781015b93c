"""`nmt doctor`: what is wrong with a corpus, before a week of training on it."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

from nmt.artefact import write_file
from nmt.cli.command import Command
from nmt.doctor.doctor import DoctorOptions, DoctorReport, SetReport, doctor
from nmt.doctor.findings import CHECKS, SEVERITIES, Finding, worst
from nmt.errors import InputError, quoted
from nmt.log import log
from nmt.options import opt
from nmt.pictures.charts import bars, svg_bars
from nmt.pictures.page import html_page, html_table

HEADINGS = ("severity", "set", "side", "what", "count", "share")


@dataclass(frozen=True, kw_only=True)
class DoctorCommandOptions(DoctorOptions):
    json: bool = opt(False, "print the report as JSON")
    html: str | None = opt(None, "also write the report, with charts, to this file: one page, no script")
    fail_on: Literal["error", "warning", "never"] = opt("error", "end with code 3 where something so bad is found")


def run(options: DoctorCommandOptions) -> int:
    """Print the report; 3 when something as bad as --fail-on is found."""
    report = doctor(options)
    if options.json:
        sys.stdout.write(json.dumps(report.to_json(), indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in _lines(report))
    if options.html is not None:
        write_file(Path(options.html), _page(report).encode())
        log.info(f"{quoted(options.html)}: written")
    found = worst(report.findings)
    if found is None or options.fail_on == "never":
        return 0
    return InputError.code if SEVERITIES.index(found) <= SEVERITIES.index(options.fail_on) else 0


def _lines(report: DoctorReport) -> Iterator[str]:
    """The report for a terminal: each set's sizes, the findings with examples, the histograms of the first set."""
    for one in report.sets:
        yield from _sizes(one)
    yield ""
    yield from _table(report.findings)
    for one in report.sets[:1]:  # of the others JSON and HTML have them
        for name, rows in one.lengths.items():
            yield from ("", _title(one, name), *(f"  {line}" for line in bars(rows)))


def _sizes(one: SetReport) -> Iterator[str]:
    sample = (
        "" if one.examined == one.pairs else f", {one.examined:,} of them looked at (what repeats, only among these)"
    )
    related = "" if one.correlation is None else f"; lengths of both sides correlate by {one.correlation:.2f}"
    yield f"{one.label}: {one.pairs:,} pairs{sample}{related}"
    for side, found in one.sides.items():
        told = f"{found['words']:,} words, {found['words'] / max(one.examined, 1):.1f} a line"
        if found["tokens"] is not None:
            told += f"; {found['tokens']:,} tokens, {found['pieces_a_word'] or 0:.2f} a word"
        if lacking := found["characters_out_of_vocabulary"]:
            told += "; out of vocabulary: " + " ".join(f"{quoted(c)} ({count:,})" for c, count in lacking.items())
        yield f"  {side}: {told}"


def _table(findings: list[Finding]) -> Iterator[str]:
    if not findings:
        yield "nothing found"
        return
    rows = [HEADINGS, *map(_cells, findings)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for i, row in enumerate(rows):
        cells = [cell.rjust(w) if k > 3 else cell.ljust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))]
        yield "  ".join(cells).rstrip()
        if i:
            finding = findings[i - 1]
            yield from (f"    {quoted(example.place)}: {example.text}" for example in finding.examples)
            yield f"    -> {CHECKS[finding.check].advice}"


def _cells(found: Finding) -> tuple[str, ...]:
    return found.severity, found.set, found.side, found.title, f"{found.count:,}", f"{100 * found.share:.2f} %"


def _title(one: SetReport, name: str) -> str:
    if name == "ratio":
        return f"{one.label}: {one.unit} of the target by those of the source, pairs"
    return f"{one.label}: {one.unit} of the {name}, lines"


def _page(report: DoctorReport) -> str:
    """The report as a web page."""
    rows = []
    for found in report.findings:
        severity, *cells = map(escape, _cells(found))
        examples = "".join(
            f"<br><code>{escape(quoted(example.place))}: {escape(example.text)}</code>" for example in found.examples
        )
        cells[2] += f"{examples}<br>{escape(CHECKS[found.check].advice)}"
        rows.append((f'<span class="{severity}">{severity}</span>', *cells))
    sizes = [f"<p>{'<br>'.join(escape(line.strip()) for line in _sizes(one))}</p>" for one in report.sets]
    table = html_table(HEADINGS, rows) if rows else "<p>nothing found</p>"
    charts = [svg_bars(_title(one, name), lengths) for one in report.sets for name, lengths in one.lengths.items()]
    return html_page("nmt doctor", [*sizes, table, *charts])


COMMAND = Command(
    "doctor",
    "What is wrong with a corpus: prepared data, or files as nmt prepare takes them. Code 3 when there is an error.",
    DoctorCommandOptions,
    run,
    positional=("data",),
)
