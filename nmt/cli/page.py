"""The page that `nmt report --html` writes: the table and the learning curves, whole in one file, without a script."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from nmt.charts import Curve, line_chart
from nmt.infer.history import History, Record

MOST_POINTS: Final = 400  # of a curve; more are averaged
STYLE: Final = """
:root { color-scheme: light dark }
body { font: 14px/1.5 sans-serif; max-width: 1180px; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse }
th, td { padding: .2em .8em; text-align: right; font-variant-numeric: tabular-nums }
th:first-child, td:first-child { text-align: left }
thead th, tr.ours { border-top: 1px solid; border-bottom: 1px solid }
svg { max-width: 100%; height: auto }
"""
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
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.head)
    body = "\n".join(
        f"<tr{' class=ours' if number == table.published else ''}>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row)
        + "</tr>"
        for number, row in enumerate(table.rows)
    )
    notes = "\n".join(f"<p>{escape(note)}</p>" for note in table.notes)
    charts = "\n".join(_charts(runs))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>nmt report</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{STYLE}</style></head><body>\n<h1>Table 2</h1>\n<table><thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody></table>\n{notes}\n{charts}\n</body></html>\n"
    )


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
