"""`nmt report`: Table 2 of "Attention Is All You Need" with runs of ours below it, and their learning curves."""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from nmt.artefact import write_file
from nmt.cli.command import Command
from nmt.cli.curves import Table, page
from nmt.errors import ArtefactError, UserError, quoted
from nmt.log import log
from nmt.options import opt
from nmt.report.history import History, read_run
from nmt.report.table2 import EN_DE, EN_FR, SUSTAINED_TFLOPS, TABLE_2, estimate

PREFERRED: Final = ("paper", "bleu")  # of the metrics in a file of scores: the paper's own BLEU, then sacreBLEU's
LEGEND: Final = (
    "cost and counted are floating-point operations of training. cost: devices x sustained TFLOPS x seconds, as the paper "
    "estimates it; counted: the matrix products of the model, 3 x forward, padding not counted."
)
VALIDATION: Final = "* the best BLEU of validation, on the development set: not to be compared with the others."


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    runs: tuple[str, ...] = opt((), "run folders of nmt train")
    scores: tuple[str, ...] = opt(
        (), "RUN=FILE: BLEU of a run, as nmt evaluate --json printed it; otherwise validation's, marked as such"
    )
    device_tflops: str | None = opt(
        None,
        f"what a device of the runs sustains, for the paper's estimate: a number, or {', '.join(SUSTAINED_TFLOPS)}",
    )
    html: str | None = opt(None, "also write the table and learning curves to this file: one page, no script")
    json: bool = opt(False, "print JSON")

    def __post_init__(self) -> None:
        if self.device_tflops is not None:
            _tflops(self.device_tflops)


class Score(msgspec.Struct):
    """A row of `nmt evaluate --json`."""

    metric: str
    value: float
    signature: str
    system: str = ""


@dataclass(frozen=True)
class Row:
    """A row of the table. bleu, cost: by language pair, the cost in FLOPs by the paper's estimate; counted: in FLOPs."""

    system: str
    bleu: Mapping[str, str]
    cost: Mapping[str, float]
    counted: float | None


def run(options: ReportOptions) -> None:
    """Print the table, or all of it as JSON, and write the page if one is asked for."""
    runs = [read_run(Path(name)) for name in options.runs]
    scores = _scores(options)
    tflops = None if options.device_tflops is None else _tflops(options.device_tflops)
    table = _table(runs, scores, tflops)
    shown = _as_json(runs, scores, tflops) if options.json else _as_text(table)
    sys.stdout.buffer.write(shown.encode())
    sys.stdout.buffer.flush()
    if options.html is not None:
        write_file(Path(options.html), page(table, runs).encode())
        log.info(f"{options.html}: the table and the learning curves of {len(runs)} runs")


def _tflops(text: str) -> float:
    """Raises ValueError for what is neither a device of the footnote nor a number above 0."""
    devices = {name.lower(): tflops for name, tflops in SUSTAINED_TFLOPS.items()}
    try:
        found = devices.get(text.lower()) or float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < math.inf:
        raise ValueError(
            f"device_tflops is '{quoted(text)}'; wanted a number above 0, or {', '.join(SUSTAINED_TFLOPS)}"
        )
    return found


def _scores(options: ReportOptions) -> dict[Path, Score]:
    """The score that was named for a run, by its folder."""
    found = {}
    for text in options.scores:
        name = next((name for name in options.runs if text.startswith(f"{name}=")), None)
        if name is None:
            raise UserError(f"--scores '{quoted(text)}': wanted RUN=FILE, RUN being one of the runs as it was given")
        found[Path(name)] = _score(Path(text[len(name) + 1 :]))
    return found


def _score(path: Path) -> Score:
    """The BLEU in a file of `nmt evaluate --json`."""
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=list[Score])
    except OSError as error:
        raise UserError(f"{quoted(path)}: cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ArtefactError(f"{quoted(path)}: not what nmt evaluate --json prints: {quoted(error)}") from None
    if len({row.system for row in rows}) > 1:
        raise UserError(f"{quoted(path)}: has scores of several systems; name a file with those of this run alone")
    ranked = [row for metric in PREFERRED for row in rows if row.metric == metric]
    if not ranked:
        raise UserError(f"{quoted(path)}: has no BLEU (nmt evaluate --json --metrics bleu, or --paper)")
    return ranked[0]


def _cost(run: History, tflops: float | None) -> float | None:
    """The paper's estimate for a run, until its newest checkpoint."""
    return None if tflops is None else estimate(run.devices, tflops, 60 * run.minutes)


def _label(run: History) -> str:
    return f"{quoted(run.folder)}: {run.preset or quoted(run.model)}, {run.parameters / 1e6:.1f}M"


def _table(runs: Sequence[History], scores: Mapping[Path, Score], tflops: float | None) -> Table:
    """The table as texts."""
    rows = [
        Row(
            row.system,
            {pair: f"{cell.bleu:.2f}".removesuffix("0") for pair, cell in row.cells.items()},
            {pair: cell.cost for pair, cell in row.cells.items() if cell.cost is not None},
            row.counted,
        )
        for row in TABLE_2
    ]
    for run in runs:
        cost = _cost(run, tflops)
        rows.append(
            Row(
                _label(run),
                {run.pair: _bleu(run, scores.get(run.folder))},
                {} if cost is None else {run.pair: cost},
                None if run.eflop is None else run.eflop * 1e18,
            )
        )
    pairs = [EN_DE, EN_FR, *sorted({run.pair for run in runs} - {EN_DE, EN_FR})]
    head = ["system", *(f"{kind} {pair.title()}" for kind in ("BLEU", "cost") for pair in pairs), "counted"]
    cells = [
        [
            row.system,
            *(row.bleu.get(pair, "-") for pair in pairs),
            *(_power(row.cost.get(pair)) for pair in pairs),
            _power(row.counted),
        ]
        for row in rows
    ]
    return Table(head, cells, len(TABLE_2), _notes(runs, scores, tflops))


def _bleu(run: History, score: Score | None) -> str:
    """A run's cell: two digits, and a star where it is validation's."""
    if score is not None:
        return f"{score.value:.2f}"
    best = run.best_bleu
    return "-" if best is None else f"{best.valid_bleu:.2f}*"


def _power(flops: float | None) -> str:
    """Floating-point operations as the paper prints them: 3.3e18."""
    return "-" if flops is None else f"{flops:.1e}".replace("e+", "e")


def _notes(runs: Sequence[History], scores: Mapping[Path, Score], tflops: float | None) -> list[str]:
    notes = [LEGEND]
    if any(run.folder not in scores and run.best_bleu is not None for run in runs):
        notes.append(VALIDATION)
    if runs and tflops is None:
        notes.append("cost of the runs: give --device-tflops, what one of their devices sustains.")
    for run in runs:
        measured = ", measured" if run.cost_is_measured else ""
        spent = f"{run.minutes:,.1f} minutes on {run.devices} device{'s' if run.devices > 1 else ''}"
        told = [f"update {run.update:,}", spent]
        if run.eflop is not None and run.updates:
            told.append(f"counted{measured} until update {run.updates[-1].update:,}: {run.eflop:.4g} EFLOP")
        else:
            told.append("its metrics.jsonl has no cost yet: older updates are counted when the run goes on")
        if run.tflops is not None:
            told.append(f"{run.tflops:.3g} TFLOP/s sustained, validation and all")
        score, best = scores.get(run.folder), run.best_bleu
        if score is not None:
            told.append(f"BLEU ({score.metric}): {quoted(score.signature)}")
        elif best is not None:
            told.append(f"BLEU of validation at update {best.update:,}")
        notes.append(f"{quoted(run.folder)}: {'; '.join(told)}")
    return notes


def _as_text(table: Table) -> str:
    widths = [max(map(len, column)) for column in zip(table.head, *table.rows, strict=True)]
    lines = [_line(table.head, widths), "-" * (sum(widths) + 2 * (len(widths) - 1))]
    lines += [_line(row, widths) for row in table.rows]
    if len(table.rows) > table.published:
        lines.insert(2 + table.published, lines[1])
    return "\n".join([*lines, "", *table.notes]) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """The first cell at the left of its column, the others at the right."""
    first = cells[0].ljust(widths[0])
    return "  ".join([first, *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))])


def _as_json(runs: Sequence[History], scores: Mapping[Path, Score], tflops: float | None) -> str:
    """The published rows, and what is known of each run; costs in FLOPs unless their name says EFLOP."""
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
    ours = [_run_as_json(run, scores.get(run.folder), tflops) for run in runs]
    return json.dumps({"published": published, "runs": ours}, indent=1, ensure_ascii=False) + "\n"


def _run_as_json(run: History, score: Score | None, tflops: float | None) -> dict[str, Any]:
    best = run.best_bleu
    return {
        "run": str(run.folder),
        "pair": run.pair,
        "model": run.model,
        "preset": run.preset,
        "parameters": run.parameters,
        "bleu": None if score is None else score.value,
        "metric": None if score is None else score.metric,
        "signature": None if score is None else score.signature,
        "best_valid_bleu": None if best is None else best.valid_bleu,
        "update": run.update,
        "minutes": run.minutes,
        "devices": run.devices,
        "eflop": run.eflop,
        "cost_is_measured": run.cost_is_measured,
        "sustained_tflops": run.tflops,
        "estimate": _cost(run, tflops),
    }


COMMAND = Command(
    "report",
    "Table 2 of the paper with runs of yours below it: BLEU and the cost of training; learning curves as HTML.",
    ReportOptions,
    run,
    positional=("runs",),
)
