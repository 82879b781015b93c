"""The page that `nmt report --html` writes: the table and the learning curves."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from nmt.cli.report_table import ReportTable
from nmt.pictures.charts import Curve, line_chart
from nmt.pictures.page import html_page, html_table
from nmt.report.history import VALIDATION_PREFIX, History, Record

MAX_POINTS: Final = 400  # of a curve; more are averaged
CHARTS: Final = {  # title and unit by the name of a number in metrics.jsonl, in the order of the page
    "loss": ("Training loss", "nats a target token"),
    "valid_loss": ("Validation loss", "nats a target token"),
    "valid_ppl": ("Validation perplexity", "per target token"),
    "valid_bleu": ("Validation BLEU", "BLEU"),
}
WITHOUT_CHART: Final = ("epoch", "nll", "target_tokens", "lr", "gradient_norm", "skipped")


def report_page(table: ReportTable, runs: Sequence[History]) -> str:
    """HTML with everything in it."""
    rows = [[escape(cell) for cell in row] for row in table.rows]
    notes = [f"<p>{escape(note)}</p>" for note in table.notes]
    return html_page("nmt report", [html_table(table.header, rows, table.num_published), *notes, *_charts(runs)])


def _charts(runs: Sequence[History]) -> Iterator[str]:
    """Two charts of each number, by updates and by cost; a chart without points is left out."""
    recorded = dict.fromkeys(name for run in runs for record in _records(run) for name in record.values)
    for name in [*CHARTS, *(name for name in recorded if name not in CHARTS and name not in WITHOUT_CHART)]:
        title, unit = CHARTS.get(name) or _title(name)
        for axis in ("updates", "EFLOP"):
            curves = [Curve(str(run.folder), _points(run, axis, name)) for run in runs]
            if any(curve.points for curve in curves):
                yield line_chart(f"{title} by {axis}", axis, unit, curves)


def _title(name: str) -> tuple[str, str]:
    """Title and unit of a number that a criterion or a metric named."""
    unit = name.removeprefix(VALIDATION_PREFIX)
    return ("Training " if unit == name else "Validation ") + unit, unit


def _records(run: History) -> list[Record]:
    return [*run.updates, *run.validations]


def _points(run: History, axis: str, name: str) -> list[tuple[float, float]]:
    """Up to MAX_POINTS points (update or cost, value): the last place of a group of points, at their mean height."""
    points = [
        (place, record.values[name])
        for record in _records(run)
        if name in record.values and (place := record.update if axis == "updates" else record.eflop) is not None
    ]
    size = max(1, -(-len(points) // MAX_POINTS))
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]
