"""`nmt report`: Table 2 of "Attention Is All You Need" with runs of ours below it, and their learning curves."""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nmt.artefact import write_file
from nmt.cli.command import Command
from nmt.cli.curves import report_page
from nmt.cli.report_table import estimated_cost, report_table
from nmt.errors import UserError, quoted
from nmt.log import log
from nmt.options import opt, options_class
from nmt.pictures.figures import check_matplotlib
from nmt.report.history import History, read_run
from nmt.report.scores import SavedScore, read_bleu
from nmt.report.table2 import SUSTAINED_TFLOPS, TABLE_2


@options_class
class ReportOptions:
    runs: tuple[str, ...] = opt((), "run folders of nmt train")
    scores: tuple[str, ...] = opt(
        (), "RUN=FILE: BLEU of a run, as nmt evaluate --json printed it; otherwise validation's, marked as such"
    )
    device_tflops: str | None = opt(
        None,
        f"what a device of the runs sustains, for the paper's estimate: a number, or {', '.join(SUSTAINED_TFLOPS)}",
    )
    html: str | None = opt(
        None, "also write the table and learning curves to this file: one page, no script (needs matplotlib)"
    )
    json: bool = opt(False, "print JSON")

    def __post_init__(self) -> None:
        if self.device_tflops is not None:
            _tflops(self.device_tflops)


def run(options: ReportOptions) -> None:
    """Print the table, or all of it as JSON, and write the page if one is asked for."""
    if options.html is not None:
        check_matplotlib("--html")
    runs = [read_run(Path(name)) for name in options.runs]
    scores = _scores(options)
    tflops = None if options.device_tflops is None else _tflops(options.device_tflops)
    table = report_table(runs, scores, tflops)
    sys.stdout.write(_json(runs, scores, tflops) if options.json else table.as_text())
    if options.html is not None:
        write_file(Path(options.html), report_page(table, runs).encode())
        log.info(f"{options.html}: the table and the learning curves of {len(runs)} runs")


def _tflops(text: str) -> float:
    """A number above 0, or that of a device of the paper's footnote; raises ValueError."""
    devices = {name.lower(): tflops for name, tflops in SUSTAINED_TFLOPS.items()}
    try:
        tflops = devices.get(text.lower()) or float(text)
    except ValueError:
        tflops = 0.0
    if not 0 < tflops < math.inf:
        raise ValueError(f"--device-tflops {quoted(text)}: must be above 0, or {', '.join(SUSTAINED_TFLOPS)}")
    return tflops


def _scores(options: ReportOptions) -> dict[str, SavedScore]:
    """The scores of --scores, by the folder of their run."""
    scores = {}
    for text in options.scores:
        run = next((run for run in options.runs if text.startswith(f"{run}=")), None)
        if run is None:
            raise UserError(f"--scores {quoted(text)}: must be RUN=FILE, where RUN is one of the runs as you named it")
        scores[str(Path(run))] = read_bleu(Path(text[len(run) + 1 :]))
    return scores


def _json(runs: Sequence[History], scores: Mapping[str, SavedScore], tflops: float | None) -> str:
    """The published systems and the runs; costs in FLOPs unless their name says EFLOP."""
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
    own = [_run_json(run, scores.get(str(run.folder)), tflops) for run in runs]
    return json.dumps({"published": published, "runs": own}, indent=1, ensure_ascii=False) + "\n"


def _run_json(run: History, score: SavedScore | None, tflops: float | None) -> dict[str, Any]:
    best = run.best_bleu
    return {
        "run": str(run.folder),
        **{name: getattr(run, name) for name in ("pair", "model", "preset", "parameters")},
        "bleu": None if score is None else score.value,
        "metric": None if score is None else score.metric,
        "signature": None if score is None else score.signature,
        "best_valid_bleu": None if best is None else best.values["valid_bleu"],
        **{name: getattr(run, name) for name in ("update", "minutes", "devices", "eflop", "cost_is_measured")},
        "sustained_tflops": run.tflops,
        "estimate": estimated_cost(run, tflops),
    }


COMMAND = Command(
    "report",
    "Table 2 of the paper with runs of yours below it: BLEU and the cost of training; learning curves as HTML.",
    ReportOptions,
    run,
    positional=("runs",),
)
