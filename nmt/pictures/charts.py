"""Charts: curves and bars as <svg> elements by matplotlib, bars as characters for a terminal."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nmt.pictures.figures import POINTS_PER_INCH, inline_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH_PIXELS, HEIGHT_PIXELS = 560, 320  # a chart of curves
BARS_WIDTH_PIXELS, BAR_PIXELS, TITLE_PIXELS = 620, 22, 40  # a chart of bars: its width, a bar, its title
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito: for every eye
LINE_STYLES: Final = ("-", "--", ":")  # each with all colours
EIGHTHS: Final = " ▏▎▍▌▋▊▉"  # a cell filled by 0 to 7 eighths from the left
FULL_CELL: Final = "█"

Bars = Sequence[tuple[str, int]]  # labels and counts


@dataclass(frozen=True)
class Curve:
    """A named line through points (x, y), in their order."""

    name: str
    points: Sequence[tuple[float, float]]


def line_chart(title: str, x_label: str, y_label: str, curves: Sequence[Curve]) -> str:
    """An <svg> element with a line a curve; points that are not finite are left out, a single point is a dot.

    The number of a curve decides its colour, counting curves without points too.
    """

    def draw(figure: "Figure") -> None:
        axes = _axes(figure, title, WIDTH_PIXELS, HEIGHT_PIXELS)
        axes.set(xlabel=x_label, ylabel=y_label)
        axes.grid(alpha=0.3)
        for number, curve in enumerate(curves):
            points = [point for point in curve.points if all(map(math.isfinite, point))]
            if points:
                style = LINE_STYLES[number // len(COLOURS) % len(LINE_STYLES)] if len(points) > 1 else "o"
                # a label that begins with _ would be left out of the legend
                axes.plot(
                    *zip(*points, strict=True), style, color=COLOURS[number % len(COLOURS)], label=f" {curve.name}"
                )
        if axes.lines:
            axes.legend()

    return inline_svg(title, draw)


def bar_chart(title: str, bars: Bars) -> str:
    """An <svg> element with a horizontal bar a row, each with its count and share."""

    def draw(figure: "Figure") -> None:
        axes = _axes(figure, title, BARS_WIDTH_PIXELS, TITLE_PIXELS + BAR_PIXELS * max(len(bars), 1))
        places, counts = range(len(bars)), [count for _, count in bars]
        container = axes.barh(places, counts, color=COLOURS[0])
        texts = [f"{count:,} ({100 * count / max(sum(counts), 1):.1f} %)" for count in counts]
        axes.bar_label(container, texts, padding=4)
        axes.set_yticks(places, [label for label, _ in bars])
        axes.invert_yaxis()
        axes.margins(x=0.25, y=0.02)  # room for the longest bar's count
        axes.xaxis.set_visible(False)
        axes.spines[:].set_visible(False)

    return inline_svg(title, draw)


def _axes(figure: "Figure", title: str, width: float, height: float) -> Any:
    """The axes of a figure with one chart. width, height: pixels"""
    figure.set_size_inches(width / POINTS_PER_INCH, height / POINTS_PER_INCH)
    figure.set_layout_engine("constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontweight="bold")
    return axes


def text_bar(count: int, largest: int, width: int) -> str:
    """A bar of up to `width` cells for a count of at most `largest`; above 0 it is at least an eighth of a cell."""
    if count <= 0:
        return ""
    eighths = max(1, round(8 * width * count / largest))
    return FULL_CELL * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def text_bars(bars: Bars, width: int = 40) -> list[str]:
    """A horizontal bar chart as lines: label, count, share and bar. width: cells of the largest bar"""
    total, largest = sum(count for _, count in bars), max((count for _, count in bars), default=0)
    margin = max((len(label) for label, _ in bars), default=0)
    digits = len(f"{largest:,}")
    return [
        f"{label:>{margin}} {count:>{digits},} {100 * count / max(total, 1):>5.1f} % "
        f"{text_bar(count, largest, width)}".rstrip()
        for label, count in bars
    ]
