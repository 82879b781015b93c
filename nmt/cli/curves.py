"""The page that `nmt report --html` writes: the table and the learning curves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from nmt.pictures.charts import Curve, line_chart
from nmt.pictures.page import html_page, html_table
from nmt.report.history import History, Record

MOST_POINTS: Final = 400  # of a curve; more are averaged
QUANTITIES: Final[Sequence[tuple[str, str, Callable[[Record], float | None]]]] = (
    ("Training loss", "nats a target token", lambda record: record.loss),
    ("Validation loss", "nats a target token", lambda record: record.valid_loss),
    ("Validation perplexity", "per target token", lambda record: record.valid_ppl),
    ("Validation BLEU", "BLEU", lambda record: record.valid_bleu),
)
ACROSS: Final[Sequence[tuple[str, Callable[[Record], float | None]]]] = (
    ("updates", lambda record: record.update),
    ("EFLOP", lambda record: record.eflop),
)


@dataclass(frozen=True)
class Table:
    """Texts of a table. published: how many of the rows are the paper's; they stand first."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    published: int
    notes: Sequence[str]


def page(table: Table, runs: Sequence[History]) -> str:
    """HTML with everything in it. Charts that would have no point are left out."""
    rows = [[escape(cell) for cell in row] for row in table.rows]
    notes = [f"<p>{escape(note)}</p>" for note in table.notes]
    return html_page("nmt report", [html_table(table.head, rows, table.published), *notes, *_charts(runs)])


def _charts(runs: Sequence[History]) -> list[str]:
    charts = []
    for title, unit, value in QUANTITIES:
        for label, place in ACROSS:
            curves = [Curve(str(run.folder), _points(run, place, value)) for run in runs]
            if any(curve.points for curve in curves):
                charts.append(line_chart(f"{title} by {label}", label, unit, curves))
    return charts


def _points(
    run: History, place: Callable[[Record], float | None], value: Callable[[Record], float | None]
) -> list[tuple[float, float]]:
    found = [
        (x, y)
        for record in [*run.updates, *run.validations]
        if (x := place(record)) is not None and (y := value(record)) is not None
    ]
    size = -(-len(found) // MOST_POINTS)
    return [_mean(found[i : i + size]) for i in range(0, len(found), size)] if found else []


def _mean(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Where the last of the points is, at their mean height."""
    return points[-1][0], sum(y for _, y in points) / len(points)
