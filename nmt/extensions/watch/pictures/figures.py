"""Figures and charts as SVG or PNG, drawn by matplotlib. The bytes are reproducible, and text in SVG stays text.

Charts are also drawn with characters, for a terminal.
"""

import io
import math
import re
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nmt.errors import UserError, quoted
from nmt.installation import missing_package
from nmt.log import log

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS_PER_INCH: Final = 72  # a pixel in our layouts is a point in matplotlib
PNG_PIXELS_PER_POINT: Final = 2
MATPLOTLIB_SETTINGS: Final[dict[Any, object]] = {
    "svg.fonttype": "none",  # keeps text as text
    "svg.hashsalt": "nmt",  # makes the ids reproducible
    "image.composite_image": False,  # one image per map
    "path.simplify": False,
    "text.parse_math": False,  # tokens and names may contain dollar signs
    "font.sans-serif": ["DejaVu Sans"],
}
NO_METADATA: Final = dict.fromkeys(("Creator", "Date", "Format", "Type"))
WIDTH_PIXELS, HEIGHT_PIXELS = 560, 320  # size of a line chart
BARS_WIDTH_PIXELS, BAR_PIXELS, TITLE_PIXELS = 620, 22, 40  # width of a bar chart, heights of a bar and of the title
CHART_COLUMNS: Final = 2
TEXT_CHART_ROWS: Final = 6
COLOURS: Final = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
)  # colours by Okabe and Ito, which colour-blind people can distinguish
LINE_STYLES: Final = ("-", "--", ":")  # each style is combined with all colours
EIGHTHS: Final = " ▏▎▍▌▋▊▉"  # cells filled by 0 to 7 eighths, from the left
FULL_CELL: Final = "█"
LEVELS: Final = " ▁▂▃▄▅▆▇█"  # cells filled by 0 to 8 eighths, from below

Bars = Sequence[tuple[str, int]]  # labels and counts


def check_file_name(path: Path, endings: Collection[str], action: str) -> None:
    """Raise UserError unless a file to be written has one of these extensions, and its folder exists.

    action: start of the message, such as "a graph is drawn"
    """
    if path.suffix.lower() not in endings:
        raise UserError(f"{quoted(path)}: {action} only to files whose names end with {', '.join(endings)}")
    if not path.parent.is_dir():
        raise UserError(f"{quoted(path)}: folder {quoted(path.parent)} not found (create it, or name another)")


def check_matplotlib(purpose: str) -> None:
    """Raise UserError unless matplotlib is installed. purpose: the flag or file that needs it, for the error"""
    if find_spec("matplotlib") is None:
        raise missing_package(purpose, "plots")


def render_figure(draw: "Callable[[Figure], None]", file_format: str) -> bytes:
    """Draw a figure and return the bytes of its file.

    draw: sets the size of a new figure and draws into it
    file_format: svg or png

    Characters that matplotlib's fonts lack become boxes in a PNG, with a warning.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    file = io.BytesIO()
    with rc_context(MATPLOTLIB_SETTINGS), warnings.catch_warnings(record=True, action="always") as caught:
        figure = Figure(facecolor="white")
        draw(figure)
        metadata = NO_METADATA if file_format == "svg" else {"Software": None}
        figure.savefig(file, format=file_format, dpi=POINTS_PER_INCH * PNG_PIXELS_PER_POINT, metadata=metadata)
    if file_format == "png" and any("missing from" in str(warning.message) for warning in caught):
        log.warn(
            "png: matplotlib's fonts lack some characters of the tokens (use .svg or .html, which use the reader's fonts)"
        )
    return file.getvalue()


def inline_svg(title: str, draw: "Callable[[Figure], None]") -> str:
    """A figure as an <svg> element for a page. title: its accessible name"""
    drawing = render_figure(draw, "svg").decode()
    drawing = drawing[drawing.index("<svg") :]  # drops the XML declaration and document type
    drawing = re.sub(r'<g id="[\w.]+">', "<g>", drawing)  # several figures on a page would share these ids
    opening, rest = drawing.split(">", 1)
    opening = re.sub(r'="([\d.]+)pt"', r'="\1"', opening).replace("<svg", '<svg role="img"')
    return f"{opening}>\n <title>{escape(title)}</title>{rest}"


@dataclass(frozen=True)
class Curve:
    """A named line through points (x, y), in the given order."""

    name: str
    points: Sequence[tuple[float, float]]

    @property
    def finite_points(self) -> list[tuple[float, float]]:
        return [point for point in self.points if all(map(math.isfinite, point))]


@dataclass(frozen=True)
class LineChart:
    """Curves in one coordinate system.

    Points that are not finite are skipped, and a single point is drawn as a dot. The colour of a curve depends on its index,
    which also counts curves without points.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]

    def draw(self, axes: Any) -> None:
        """Draw the curves on matplotlib axes."""
        axes.set(xlabel=self.x_label, ylabel=self.y_label)
        axes.grid(alpha=0.3)
        for number, curve in enumerate(self.curves):
            if points := curve.finite_points:
                style = LINE_STYLES[number // len(COLOURS) % len(LINE_STYLES)] if len(points) > 1 else "o"
                # with a leading space, because matplotlib hides labels that start with _
                axes.plot(
                    *zip(*points, strict=True), style, color=COLOURS[number % len(COLOURS)], label=f" {curve.name}"
                )
        if axes.lines:
            axes.legend()

    def as_svg(self) -> str:
        """An <svg> element for a page."""
        return inline_svg(self.title, lambda figure: _draw_charts(figure, [self]))

    def as_text(self, width: int) -> list[str]:
        """The chart as lines of at most `width` cells: one area chart per curve, all with the same scales."""
        drawn = [(curve.name, points) for curve in self.curves if (points := curve.finite_points)]
        last = max((points[-1][0] for _, points in drawn), default=0.0)
        heights = [y for _, points in drawn for _, y in points]
        low, high = min(heights, default=0.0), max(heights, default=0.0)
        labels = f"{high:.4g}", f"{low:.4g}"
        margin = max(map(len, labels))
        lines = [f"{self.title} ({self.y_label}) by {self.x_label}, to {last:,g}"]
        for name, points in drawn:
            values = [y for _, y in points]
            cells = max(1, round((width - margin - 2) * points[-1][0] / (last or 1)))
            stretched = values if len(values) >= cells else [values[i * len(values) // cells] for i in range(cells)]
            rows = text_curve(stretched, cells, TEXT_CHART_ROWS, low, high)
            margins = [labels[0], *[""] * (TEXT_CHART_ROWS - 2), labels[1]]
            lines.append(f"{name}: last {values[-1]:.4g}, lowest {min(values):.4g}, highest {max(values):.4g}")
            lines += [f"{label:>{margin}} |{row}".rstrip() for label, row in zip(margins, rows, strict=True)]
        return lines


def draw_charts(charts: Sequence[LineChart], file_format: str) -> bytes:
    """The bytes of one figure with all charts in two columns. file_format: svg or png"""
    return render_figure(lambda figure: _draw_charts(figure, charts), file_format)


def _draw_charts(figure: "Figure", charts: Sequence[LineChart]) -> None:
    columns = min(len(charts), CHART_COLUMNS)
    rows = -(-len(charts) // CHART_COLUMNS)
    figure.set_size_inches(columns * WIDTH_PIXELS / POINTS_PER_INCH, rows * HEIGHT_PIXELS / POINTS_PER_INCH)
    figure.set_layout_engine("constrained")
    for number, chart in enumerate(charts, 1):
        axes = figure.add_subplot(rows, columns, number)
        axes.set_title(chart.title, loc="left", fontweight="bold")
        chart.draw(axes)


def bar_chart(title: str, bars: Bars) -> str:
    """An <svg> element with one horizontal bar per row, each with its count and share."""

    def draw(figure: "Figure") -> None:
        height = TITLE_PIXELS + BAR_PIXELS * max(len(bars), 1)
        figure.set_size_inches(BARS_WIDTH_PIXELS / POINTS_PER_INCH, height / POINTS_PER_INCH)
        figure.set_layout_engine("constrained")
        axes = figure.add_subplot()
        axes.set_title(title, loc="left", fontweight="bold")
        places, counts = range(len(bars)), [count for _, count in bars]
        container = axes.barh(places, counts, color=COLOURS[0])
        texts = [f"{count:,} ({100 * count / max(sum(counts), 1):.1f} %)" for count in counts]
        axes.bar_label(container, texts, padding=4)
        axes.set_yticks(places, [label for label, _ in bars])
        axes.invert_yaxis()
        axes.margins(x=0.25, y=0.02)  # space for the count of the longest bar
        axes.xaxis.set_visible(False)
        axes.spines[:].set_visible(False)

    return inline_svg(title, draw)


def text_bar(count: int, largest: int, width: int) -> str:
    """A bar of up to `width` cells for a count of at most `largest`. A positive count fills at least an eighth of a cell."""
    if count <= 0:
        return ""
    eighths = max(1, round(8 * width * count / largest))
    return FULL_CELL * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def text_curve(values: Sequence[float], width: int, height: int, low: float, high: float) -> list[str]:
    """An area chart as `height` lines of up to `width` cells. If there are more values, neighbouring ones are averaged.

    low, high: values at the bottom and at the top; the lowest fills an eighth of a cell
    """
    size, rest = divmod(len(values), max(min(width, len(values)), 1))
    ends = [number * size + min(number, rest) for number in range(min(width, len(values)) + 1)]
    means = [sum(values[start:end]) / (end - start) for start, end in pairwise(ends)]
    steps = 8 * height - 1
    eighths = [1 + round(steps * min(max((mean - low) / ((high - low) or 1.0), 0.0), 1.0)) for mean in means]
    rows = reversed(range(height))
    return ["".join(LEVELS[min(max(filled - 8 * row, 0), 8)] for filled in eighths) for row in rows]


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve in one line of up to `width` cells, scaled from its lowest to its highest value."""
    return text_curve(values, width, 1, min(values), max(values))[0] if values else ""


def text_bars(bars: Bars, width: int = 40) -> list[str]:
    """A horizontal bar chart as lines of label, count, share and bar. width: cells of the longest bar"""
    total, largest = sum(count for _, count in bars), max((count for _, count in bars), default=0)
    margin = max((len(label) for label, _ in bars), default=0)
    digits = len(f"{largest:,}")
    return [
        f"{label:>{margin}} {count:>{digits},} {100 * count / max(total, 1):>5.1f} % "
        f"{text_bar(count, largest, width)}".rstrip()
        for label, count in bars
    ]
