"""The table of `nmt report` as text: the published systems, the runs below them, and notes on each run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nmt.cli.tables import table_lines
from nmt.errors import quoted
from nmt.report.history import History
from nmt.report.scores import SavedScore
from nmt.report.table2 import EN_DE, EN_FR, TABLE_2, estimate

COST_LEGEND: Final = (
    "cost and counted are floating-point operations of training. cost: devices x sustained TFLOPS x seconds, as the paper "
    "estimates it; counted: the matrix products of the model, 3 x forward, padding not counted."
)
VALIDATION_LEGEND: Final = "* the best BLEU of validation, on the development set: not to be compared with the others."


@dataclass(frozen=True)
class ReportTable:
    """Texts of a table. num_published: the first rows, which are the paper's"""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_published: int
    notes: Sequence[str]

    def as_text(self) -> str:
        header, *lines = table_lines([self.header, *self.rows], right=range(1, len(self.header)))
        rule = "-" * max(map(len, [header, *lines]))
        published, runs = lines[: self.num_published], lines[self.num_published :]
        parts = [header, rule, *published, *([rule, *runs] if runs else []), "", *self.notes]
        return "\n".join(parts) + "\n"


def estimated_cost(run: History, tflops: float | None) -> float | None:
    """The paper's estimate for a run until its newest checkpoint, in FLOPs; None without the TFLOPS of a device."""
    return None if tflops is None else estimate(run.devices, tflops, 60 * run.minutes)


def report_table(runs: Sequence[History], scores: Mapping[str, SavedScore], tflops: float | None) -> ReportTable:
    """The table with its notes.

    scores: by the folder of the run
    tflops: 10^12 operations a second that a device of the runs sustains, if given
    """
    pairs = [EN_DE, EN_FR, *sorted({run.pair for run in runs} - {EN_DE, EN_FR})]
    header = ["system", *(f"{kind} {pair.title()}" for kind in ("BLEU", "cost") for pair in pairs), "counted"]
    rows: list[list[str]] = []

    def add_row(system: str, cells: Mapping[str, tuple[str, float | None]], counted: float | None) -> None:
        """cells: BLEU and cost in FLOPs by language pair; counted: FLOPs"""
        bleu, cost = zip(*(cells.get(pair, ("-", None)) for pair in pairs), strict=True)
        rows.append([system, *bleu, *map(_power, cost), _power(counted)])

    for row in TABLE_2:
        cells = {pair: (f"{cell.bleu:.2f}".removesuffix("0"), cell.cost) for pair, cell in row.cells.items()}
        add_row(row.system, cells, row.counted)
    for run in runs:
        label = f"{quoted(run.folder)}: {run.preset or quoted(run.model)}, {run.parameters / 1e6:.1f}M"
        cell = _bleu(run, scores.get(str(run.folder))), estimated_cost(run, tflops)
        add_row(label, {run.pair: cell}, None if run.eflop is None else run.eflop * 1e18)
    return ReportTable(header, rows, len(TABLE_2), _notes(runs, scores, tflops))


def _bleu(run: History, score: SavedScore | None) -> str:
    """The BLEU of a run, with a star if it is of validation."""
    if score is not None:
        return f"{score.value:.2f}"
    return "-" if run.best_bleu is None else f"{run.best_bleu.values['valid_bleu']:.2f}*"


def _power(flops: float | None) -> str:
    """Floating-point operations as the paper prints them: 3.3e18."""
    return "-" if flops is None else f"{flops:.1e}".replace("e+", "e")


def _notes(runs: Sequence[History], scores: Mapping[str, SavedScore], tflops: float | None) -> list[str]:
    notes = [COST_LEGEND]
    if any(str(run.folder) not in scores and run.best_bleu is not None for run in runs):
        notes.append(VALIDATION_LEGEND)
    if runs and tflops is None:
        notes.append("cost of the runs: give --device-tflops, what one of their devices sustains.")
    return [*notes, *(f"{quoted(run.folder)}: {_note(run, scores.get(str(run.folder)))}" for run in runs)]


def _note(run: History, score: SavedScore | None) -> str:
    """How long a run was trained, at what cost, and the origin of its BLEU."""
    spent = f"{run.minutes:,.1f} minutes on {run.devices} device{'s' if run.devices > 1 else ''}"
    parts = [f"update {run.update:,}", spent]
    if run.eflop is not None and run.updates:
        measured = ", measured" if run.cost_is_measured else ""
        parts.append(f"counted{measured} until update {run.updates[-1].update:,}: {run.eflop:.4g} EFLOP")
    else:
        parts.append("its metrics.jsonl has no cost yet: older updates are counted when the run goes on")
    if run.tflops is not None:
        parts.append(f"{run.tflops:.3g} TFLOP/s sustained, validation included")
    if score is not None:
        parts.append(f"BLEU ({score.metric}): {quoted(score.signature)}")
    elif run.best_bleu is not None:
        parts.append(f"BLEU of validation at update {run.best_bleu.update:,}")
    return "; ".join(parts)
