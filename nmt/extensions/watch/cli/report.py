"""`nmt report`: print Table 2 of the paper, BLEU and training cost, with rows for your runs."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, Final

from nmt.cli.command import Command
from nmt.errors import UserError, quoted
from nmt.extensions.watch.history import History, named_runs, read_bleu, read_run, read_stats
from nmt.extensions.watch.pictures.page import html_page, html_table
from nmt.extensions.watch.table2 import EN_DE, EN_FR, SUSTAINED_TFLOPS, TABLE_2, estimate
from nmt.extensions.watch.table_formats import TableStyle, formatted_table, latex_text, markdown_text
from nmt.files import json_text, write_output
from nmt.log import log
from nmt.options import opt, options_class

COST_LEGEND: Final = (
    "cost and counted are floating-point operations of training. cost is the paper's estimate: devices x sustained TFLOPS x "
    "seconds. counted is the cost of the model's matrix products, 3 x that of the forward pass, without padding."
)
SPEED_LEGEND: Final = (
    "MFLOP/token: counted operations of the updates per target token. tokens/s: target tokens per second of training, "
    "including validation and saving. sentences/s: speed of nmt translate, without its start-up."
)
VALIDATION_LEGEND: Final = "* the best validation BLEU, on the validation set: do not compare it with the others."


SPEED_HEADER: Final = "run", "parameters (M)", "MFLOP/token", "target tokens (M)", "tokens/s", "sentences/s"
CSV_HEADER: Final = *SPEED_HEADER, "BLEU from"


@options_class
class ReportOptions:
    runs: tuple[str, ...] = opt((), "run folders, or folders of runs", group="Input and output")
    scores: tuple[str, ...] = opt(
        (), "RUN=FILE: BLEU from nmt evaluate --json", group="Input and output", common=True, metavar="RUN=FILE"
    )
    test_set: str | None = opt(
        None, "test set of the runs, if not newstest2014; results on it get separate columns", group="Input and output"
    )
    stats: tuple[str, ...] = opt(
        (), "RUN=FILE: speed from nmt translate --stats", group="Input and output", common=True, metavar="FILE"
    )
    device_tflops: str | None = opt(
        None,
        f"sustained TFLOPS per device, to estimate the cost as the paper does: a number, or {', '.join(SUSTAINED_TFLOPS)}",
        group="Input and output",
    )
    html: str | None = opt(None, "also write the table to this HTML file", group="Input and output", metavar="FILE")
    table: TableStyle = opt(
        "text",
        "print the table as text, markdown, csv (full precision) or latex",
        group="Input and output",
        excludes=("json",),
    )
    json: bool = opt(False, "print JSON", group="Input and output")

    def __post_init__(self) -> None:
        if self.device_tflops is not None:
            _tflops(self.device_tflops)


def run(options: ReportOptions) -> None:
    """Print Table 2 of the paper with your runs below it: BLEU, training cost, and speed."""
    folders = named_runs(options.runs)
    names = [*options.runs, *map(str, folders)]
    with log.progress("reading runs", len(folders), "runs") as bar:
        runs = []
        for folder in folders:
            runs.append(read_run(folder))
            bar.advance()
    scores = {run: read_bleu(path) for run, path in _files(names, "--scores", options.scores)}
    stats = {run: read_stats(path) for run, path in _files(names, "--stats", options.stats)}
    runs = [replace(run, score=scores.get(run.folder), stats=stats.get(run.folder)) for run in runs]
    tflops = None if options.device_tflops is None else _tflops(options.device_tflops)
    is_exact = options.table == "csv"
    table = report_table(runs, options.test_set, tflops, is_exact)
    sys.stdout.write(_json(runs, tflops) if options.json else table.printed(options.table))
    if options.html is not None:
        page = report_page(report_table(runs, options.test_set, tflops) if is_exact else table)
        write_output(Path(options.html), page.encode())
        log.info(f"{options.html}: the table")


def _tflops(text: str) -> float:
    """A positive number, or the TFLOPS of a device named in the paper's footnote. Raises ValueError for anything else."""
    devices = {name.lower(): tflops for name, tflops in SUSTAINED_TFLOPS.items()}
    try:
        tflops = devices.get(text.lower()) or float(text)
    except ValueError:
        tflops = 0.0
    if not 0 < tflops < math.inf:
        raise ValueError(f"--device-tflops {quoted(text)}: must be positive, or one of {', '.join(SUSTAINED_TFLOPS)}")
    return tflops


def _files(runs: Sequence[str], flag: str, values: Sequence[str]) -> Iterator[tuple[Path, Path]]:
    """The run folder and the file of each RUN=FILE."""
    for text in values:
        run = max((run for run in runs if text.startswith(f"{run}=")), key=len, default=None)
        if run is None:
            raise UserError(f"{flag} {quoted(text)}: must be RUN=FILE, with RUN spelled as in the RUNS arguments")
        yield Path(run), Path(text[len(run) + 1 :])


def _json(runs: Sequence[History], tflops: float | None) -> str:
    """The published systems and the runs as JSON. Costs are in FLOPs unless their name says EFLOP."""
    published = [
        {
            "system": row.system,
            "counted": row.counted,
            "cells": {
                pair: {**asdict(cell), "estimate": cell.training.flops() if cell.training else None}
                for pair, cell in row.cells.items()
            },
        }
        for row in TABLE_2
    ]
    return json_text({"published": published, "runs": [_run_json(run, tflops) for run in runs]})


def _run_json(run: History, tflops: float | None) -> dict[str, Any]:
    best, score = run.best_bleu, run.score
    return {
        "run": str(run.folder),
        **{name: getattr(run, name) for name in ("pair", "model", "preset", "parameters")},
        "bleu": None if score is None else score.value,
        "metric": None if score is None else score.metric,
        "signature": None if score is None else score.signature,
        "best_valid_bleu": None if best is None else best.values["valid_bleu"],
        "update": run.newest.update,
        "minutes": run.newest.minutes,
        "devices": run.newest.ranks,
        "eflop": run.eflop,
        "cost_is_measured": run.newest.cost_is_measured,
        "sustained_tflops": run.tflops,
        "target_tokens": run.target_tokens,
        "flops_per_token": run.flops_per_token,
        "tokens_per_second": run.tokens_per_second,
        "sentences_per_second": None if run.stats is None else run.stats.lines_per_second,
        "estimate": estimated_cost(run, tflops),
    }


@dataclass(frozen=True)
class ReportTable:
    """The texts of a report. rows: the rows of TABLE_2, then the rows of the runs; speeds: one row per run, below SPEED_HEADER"""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    speeds: Sequence[Sequence[str]]
    notes: Sequence[str]

    def printed(self, table: TableStyle) -> str:
        """The tables and notes in a format. In CSV, there are no notes, and the speeds are further columns of one table."""
        first_run, speeds = 1 + len(TABLE_2), [SPEED_HEADER, *self.speeds] if self.speeds else []
        if table == "csv":
            further = [CSV_HEADER, *[[""] * len(CSV_HEADER)] * len(TABLE_2), *self.speeds]
            rows = [[*row, *more[1:]] for row, more in zip([self.header, *self.rows], further, strict=True)]
            return _joined(formatted_table(rows, table))
        lines = list(formatted_table([self.header, *self.rows], table, range(1, len(self.header)), rules={first_run}))
        speed_lines = list(formatted_table(speeds, table, range(1, len(SPEED_HEADER)))) if speeds else []
        if table == "text":
            rule = "-" * max(map(len, lines))
            lines = [lines[0], rule, *lines[1:first_run], *([rule, *lines[first_run:]] if speeds else [])]
        escapes: dict[TableStyle, Callable[[str], str]] = {"text": str, "markdown": markdown_text, "latex": latex_text}
        gap = "" if table == "text" else "\n"  # one paragraph per note
        notes = f"\n{gap}".join(map(escapes[table], self.notes)).split("\n")
        return _joined([*lines, "", *speed_lines, *([""] if speeds else []), *notes])


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def estimated_cost(run: History, tflops: float | None) -> float | None:
    """The paper's estimate of a run's cost up to its newest checkpoint, in FLOPs; None if its devices' TFLOPS are unknown."""
    return None if tflops is None else estimate(run.newest.ranks, tflops, 60 * run.newest.minutes)


def report_table(
    runs: Sequence[History], test_set: str | None, tflops: float | None, is_exact: bool = False
) -> ReportTable:
    """The table with its notes.

    test_set: test set of the runs, if it is not the paper's
    tflops: sustained TFLOPS (10^12 operations per second) of one device, if given
    is_exact: whether to print all digits of numbers, and nothing for unknown numbers
    """
    unknown, power = ("", _exact) if is_exact else ("-", _power)
    columns = {
        run.folder: run.pair.title() if test_set is None else f"{run.pair.title()} {quoted(test_set)}" for run in runs
    }
    published = [EN_DE.title(), EN_FR.title()]
    rows = []
    for system in TABLE_2:
        bleus = {pair.title(): f"{cell.bleu:.2f}".removesuffix("0") for pair, cell in system.cells.items()}
        costs = {pair.title(): cell.cost for pair, cell in system.cells.items()}
        rows.append((system.system, bleus, costs, system.counted))
    for run in runs:
        label = f"{quoted(run.folder)}: {run.preset or quoted(run.model)}, {run.parameters / 1e6:.1f}M"
        bleus, costs = {columns[run.folder]: _bleu(run, is_exact)}, {columns[run.folder]: estimated_cost(run, tflops)}
        rows.append((label, bleus, costs, None if run.eflop is None else run.eflop * 1e18))
    names = [*published, *sorted(set(columns.values()) - set(published))]
    with_costs = [name for name in names if any(costs.get(name) is not None for _, _, costs, _ in rows)]
    header = ["system", *(f"BLEU {name}" for name in names), *(f"cost {name}" for name in with_costs), "counted"]
    texts = [
        [
            system,
            *(bleus.get(name, unknown) for name in names),
            *(power(costs.get(name)) for name in with_costs),
            power(counted),
        ]
        for system, bleus, costs, counted in rows
    ]
    return ReportTable(header, texts, [_speeds(run, is_exact) for run in runs], _notes(runs, tflops))


def _exact(number: float | None) -> str:
    return "" if number is None else repr(number)


def _speeds(run: History, is_exact: bool) -> list[str]:
    """A run's row for the columns of SPEED_HEADER, or of CSV_HEADER if exact."""
    millions = [
        None if number is None else number / 1e6 for number in (run.parameters, run.flops_per_token, run.target_tokens)
    ]
    numbers = *millions, run.tokens_per_second, None if run.stats is None else run.stats.lines_per_second
    if is_exact:
        origin = "test set" if run.score is not None else "" if run.best_bleu is None else "validation"
        return [quoted(run.folder), *map(_exact, numbers), origin]
    return [quoted(run.folder), *("-" if number is None else f"{number:,.1f}" for number in numbers)]


def _bleu(run: History, is_exact: bool) -> str:
    """BLEU as text. A validation BLEU is marked with a star, except in exact numbers."""
    if is_exact:
        best = None if run.best_bleu is None else run.best_bleu.values["valid_bleu"]
        return _exact(best if run.score is None else run.score.value)
    if run.score is not None:
        return f"{run.score.value:.2f}"
    return "-" if run.best_bleu is None else f"{run.best_bleu.values['valid_bleu']:.2f}*"


def _power(flops: float | None) -> str:
    """Floating-point operations as the paper prints them, such as 3.3e18."""
    return "-" if flops is None else f"{flops:.1e}".replace("e+", "e")


def _notes(runs: Sequence[History], tflops: float | None) -> list[str]:
    notes = [COST_LEGEND]
    if any(run.score is None and run.best_bleu is not None for run in runs):
        notes.append(VALIDATION_LEGEND)
    if runs:
        notes.append(SPEED_LEGEND)
    if runs and tflops is None:
        notes.append("cost of the runs: unknown without --device-tflops, the sustained TFLOPS of one device.")
    return [*notes, *(f"{quoted(run.folder)}: {_note(run)}" for run in runs)]


def _note(run: History) -> str:
    """How long a run was trained, what that cost, and where its BLEU comes from."""
    newest = run.newest
    spent = f"{newest.minutes:,.1f} minutes on {newest.ranks} device{'s' if newest.ranks > 1 else ''}"
    parts = [f"update {newest.update:,}", spent]
    if run.eflop is not None and run.updates:
        measured = ", measured" if newest.cost_is_measured else ""
        parts.append(f"counted{measured} until update {run.updates[-1].update:,}: {run.eflop:.4g} EFLOP")
    else:
        parts.append("its metrics.jsonl has no cost yet: older updates are counted when the run is resumed")
    if run.tflops is not None:
        parts.append(f"{run.tflops:.3g} TFLOP/s sustained, including validation")
    if run.score is not None:
        parts.append(f"BLEU ({run.score.metric}): {quoted(run.score.signature)}")
    elif run.best_bleu is not None:
        parts.append(f"validation BLEU at update {run.best_bleu.update:,}")
    return "; ".join(parts)


def report_page(table: ReportTable) -> str:
    rows = [[escape(cell) for cell in row] for row in table.rows]
    notes = [f"<p>{escape(note)}</p>" for note in table.notes]
    tables = [html_table(table.header, rows, len(TABLE_2))]
    if table.speeds:
        tables.append(html_table(SPEED_HEADER, [[escape(cell) for cell in row] for row in table.speeds]))
    return html_page("nmt report", [*tables, *notes])


COMMAND = Command(
    "report",
    ReportOptions,
    run,
    positional=("runs...",),
    greedy=False,
    group="train",
    examples=(
        "nmt report runs",
        "nmt report runs/a runs/b --html report.html",
        "nmt report run --scores run=scores.json --json",
    ),
)
