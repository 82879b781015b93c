"""`nmt plot`: draw the curves of runs, such as losses, metrics and the learning rate."""

import csv
import io
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nmt import registry
from nmt.cli.command import Command
from nmt.cli.tables import table_text
from nmt.errors import UserError, needing_torch, one_line, quoted, unknown
from nmt.extensions.watch.history import Record, named_runs, read_records, runs_here
from nmt.extensions.watch.pictures.figures import (
    Curve,
    LineChart,
    check_file_name,
    check_matplotlib,
    draw_charts,
    inline_svg,
    render_figure,
)
from nmt.extensions.watch.pictures.page import html_page
from nmt.files import json_text, write_output
from nmt.log import log
from nmt.options import choice, names_of, opt, options_of
from nmt.report.run_status import VALIDATION_PREFIX

if TYPE_CHECKING:
    from nmt.extensions.watch.figure import Figure, FigureRow

MAX_POINTS: Final = 400  # maximum number of points per curve; more are averaged
CHARTS: Final = {  # titles and units of the numbers in metrics.jsonl, in the order of the charts
    "loss": ("Training loss", "nats per target token"),
    "valid_loss": ("Validation loss", "nats per target token"),
    "valid_ppl": ("Validation perplexity", "perplexity per target token"),
    "valid_bleu": ("Validation BLEU", "BLEU"),
    "lr": ("Learning rate", "learning rate"),
}
AXES: Final = {"updates": "updates", "EFLOP": "cost in EFLOP (10^18 operations)"}  # labels of the axes
ONLY_BY_NAME: Final = (
    "epoch",
    "nll",
    "valid_nll",
    "target_tokens",
    "gradient_norm",
    "skipped",
    "rollbacks",
)  # numbers that are drawn only if --values names them
PICTURES: Final = (".svg", ".png", ".html")
NUMBERS: Final = (".json", ".tsv")  # files for the numbers of a figure
CURVES: Final = "curves"

RunRecords = tuple[str, Sequence[Record]]  # the name of a run's folder, and its records: updates, then validations


@registry.open_options_class("figure")
class PlotOptions:
    runs: tuple[str, ...] = opt(
        (),
        "run folders, or folders of runs (default: those in . and in runs)",
        group="Input and output",
    )
    figure: str = choice(
        "figure", CURVES, "what to draw (nmt list figure)", also=(CURVES,), group="Figures", common=True
    )
    output: str | None = opt(
        None,
        "write a .svg, .png or .html file instead of text",
        aliases=("o",),
        group="Input and output",
        common=True,
        metavar="FILE",
    )
    values: tuple[str, ...] = opt(
        (), "numbers to draw, such as loss,valid_bleu", group="Curves", common=True, metavar="NUMBER"
    )

    def __post_init__(self) -> None:
        chosen = None if self.figure == CURVES else registry.options_class_of("figure", self.figure)
        if chosen is not None and self.values:
            raise ValueError(f"--values works only without --figure {self.figure} (drop one of them)")
        own = () if chosen is None else [option.name for option in options_of(chosen)]
        others = set(registry.option_names("figure")).difference(own)
        for option in options_of(type(self)):
            if option.name in others and getattr(self, option.name) != option.default:
                figures = " or ".join(registry.having("figure", option.name))
                raise ValueError(f"{option.flag} needs --figure {figures} (add it, or drop {option.flag})")


def run(options: PlotOptions) -> None:
    """Draw the curves of runs, such as losses, metrics and the learning rate, over their updates; or another figure."""
    output = None if options.output is None else Path(options.output)
    if options.figure != CURVES:
        _run_figure(options, output)
        return
    if output is not None:
        check_file_name(output, PICTURES, "curves are drawn")
        check_matplotlib(f"--output {quoted(output)}")
    runs: list[RunRecords] = []
    values = names_of(options.values)
    folders = named_runs(options.runs) if options.runs else runs_here("plot")
    with log.progress("reading runs", len(folders), "runs") as bar:
        for folder in folders:
            updates, validations = read_records(folder)
            runs.append((one_line(str(folder)), [*updates, *validations]))
            bar.advance()
        charts = line_charts(runs, values, ("updates", "EFLOP") if _is_page(output) else ("updates",))
    if not charts:
        raise UserError(f"{quoted(folders[0])}: no updates to draw yet (wait for the first log line)")
    if output is None:
        width = shutil.get_terminal_size().columns
        sys.stdout.write("\n\n".join("\n".join(chart.as_text(width)) for chart in charts) + "\n")
        return
    with log.progress("drawing"):
        if _is_page(output):
            content = html_page("nmt plot", [chart.as_svg() for chart in charts]).encode()
        else:
            content = draw_charts(charts, output.suffix.lower().removeprefix("."))
    write_output(output, content)
    log.info(f"wrote charts of {', '.join(name for name, _ in runs)} to {quoted(output)}")


def _run_figure(options: Any, output: Path | None) -> None:
    """Draw a figure, or print or write its numbers."""
    if output is not None:
        check_file_name(output, (*PICTURES, *NUMBERS), "figures are drawn")
        if output.suffix.lower() not in NUMBERS:
            check_matplotlib(f"--output {quoted(output)}")
    with needing_torch(f"--figure {options.figure}"):
        figure: Figure = registry.find("figure", options.figure).cls(options)
    rows = figure.rows(options.runs or tuple(map(str, runs_here("plot"))))
    if output is None:
        cells = [list(rows[0]), *(["-" if value is None else _text(value) for value in row.values()] for row in rows)]
        sys.stdout.write(
            table_text(cells, [i for i, value in enumerate(rows[0].values()) if not isinstance(value, str)])
        )
        return
    with log.progress("drawing"):
        content = _file(figure, rows, output.suffix.lower())
    write_output(output, content)
    log.info(f"wrote {options.figure} to {quoted(output)}")


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _file(figure: "Figure", rows: "Sequence[FigureRow]", ending: str) -> bytes:
    """The content of a file with a figure or its numbers. ending: one of PICTURES and NUMBERS"""
    if ending == ".json":
        return json_text(rows).encode()
    if ending == ".tsv":
        file = io.StringIO()
        csv.writer(file, "excel-tab", lineterminator="\n").writerows([list(rows[0]), *(row.values() for row in rows)])
        return file.getvalue().encode()
    if ending == ".html":
        return html_page(figure.title, [inline_svg(figure.title, lambda canvas: figure.draw(canvas, rows))]).encode()
    return render_figure(lambda canvas: figure.draw(canvas, rows), ending.removeprefix("."))


def _is_page(output: Path | None) -> bool:
    return output is not None and output.suffix.lower() == ".html"


def _points(records: Sequence[Record], axis: str, name: str) -> list[tuple[float, float]]:
    """Up to MAX_POINTS points (updates or EFLOP, value). Each has the last position and the mean value of a group of records."""
    points = [
        (place, record.values[name])
        for record in records
        if name in record.values and (place := record.update if axis == "updates" else record.eflop) is not None
    ]
    size = max(1, -(-len(points) // MAX_POINTS))
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def line_charts(runs: Sequence[RunRecords], values: Sequence[str], axes: Sequence[str]) -> list[LineChart]:
    """A chart for each number and axis that has points. values: names of the numbers; empty for the usual numbers"""
    recorded = dict.fromkeys(name for _, records in runs for record in records for name in record.values)
    usual = [*CHARTS, *(name for name in recorded if name not in CHARTS and name not in ONLY_BY_NAME)]
    for name in values:
        if name not in recorded:
            raise unknown("number for --values", name, recorded)
    charts = []
    for name in values or usual:
        title, unit = CHARTS.get(name) or _title(name)
        for axis in axes:
            curves = [Curve(run, _points(records, axis, name)) for run, records in runs]
            if any(curve.points for curve in curves):
                charts.append(LineChart(f"{title} by {axis}" if len(axes) > 1 else title, AXES[axis], unit, curves))
    return charts


def _title(name: str) -> tuple[str, str]:
    """The title and unit of a number that a criterion or metric has recorded."""
    unit = name.removeprefix(VALIDATION_PREFIX)
    return ("Training " if unit == name else "Validation ") + unit, unit


COMMAND = Command(
    "plot",
    PlotOptions,
    run,
    positional=("runs...",),
    greedy=False,
    group="train",
    examples=(
        "nmt plot run",
        "nmt plot runs/a runs/b --output curves.html",
        "nmt plot run --figure attention-entropy --output entropy.svg",
    ),
)
