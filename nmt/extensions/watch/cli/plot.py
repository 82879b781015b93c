"""`nmt plot`: draw the curves of runs, such as losses, metrics and the learning rate."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nmt.cli.command import Command
from nmt.errors import UserError, one_line, quoted, unknown
from nmt.extensions.watch.history import Record, named_runs, read_records, runs_here
from nmt.extensions.watch.pictures.figures import Curve, LineChart, check_file_name, check_matplotlib, draw_charts
from nmt.extensions.watch.pictures.page import html_page
from nmt.files import write_output
from nmt.log import log
from nmt.options import names_of, opt, options_class
from nmt.report.run_status import VALIDATION_PREFIX

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

RunRecords = tuple[str, Sequence[Record]]  # the name of a run's folder, and its records: updates, then validations


@options_class
class PlotOptions:
    runs: tuple[str, ...] = opt(
        (),
        "run folders, or folders of runs (default: those in . and in runs)",
        group="Input and output",
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


def run(options: PlotOptions) -> None:
    """Draw the curves of runs, such as losses, metrics and the learning rate, over their updates."""
    output = None if options.output is None else Path(options.output)
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
        "nmt plot run --values loss,gradient_norm",
    ),
)
