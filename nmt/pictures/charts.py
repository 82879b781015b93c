"""Charts as text: lines and bars as SVG, without script, font or file from elsewhere; bars as characters for a terminal."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 560
HEIGHT: Final = 320
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 48  # of the plot, in pixels
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito: for every eye
DASHES: Final = ("", "6 3", "2 3")

EIGHTHS: Final = " ▏▎▍▌▋▊▉"  # a cell filled by 0 to 7 eighths from the left
FULL: Final = "█"
LABELS, BAR, GAP, WIDEST, COUNTS, TITLE = 130, 18, 4, 420, 150, 30  # of a bar chart, in pixels

Rows = Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Curve:
    """A named line through points (x, y), in their order."""

    name: str
    points: Sequence[tuple[float, float]]


def line_chart(title: str, x_label: str, y_label: str, curves: Sequence[Curve]) -> str:
    """An <svg> element of WIDTH x HEIGHT. Points that are not finite are left out; a curve of one point is a dot.

    The place of a curve among the others decides its colour, also where others have no point.
    """
    kept = [[(x, y) for x, y in curve.points if math.isfinite(x) and math.isfinite(y)] for curve in curves]
    every = [point for points in kept for point in points] or [(0.0, 0.0)]
    across, up = (_Axis.of([point[i] for point in every]) for i in range(2))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(title)}" font-family="sans-serif" font-size="11" fill="currentColor">',
        f'<text x="{LEFT}" y="16" font-size="13" font-weight="bold">{escape(title)}</text>',
        *_grid(across, up),
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:g}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x_label)}</text>',
        f'<text transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2:g}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>",
    ]
    for number, points in enumerate(kept):
        parts += _drawn(number, [(_x(across, x), _y(up, y)) for x, y in points])
    parts += _legend([(number, curve.name) for number, curve in enumerate(curves) if kept[number]])
    return "\n".join([*parts, "</svg>"])


@dataclass(frozen=True)
class _Axis:
    """low, high: its ends; step: between its marks."""

    low: float
    high: float
    step: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "_Axis":
        """Ends and marks at round numbers (1, 2 or 5 times a power of ten) around the values."""
        low, high = min(values), max(values)
        if low == high:
            low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
        power = 10.0 ** math.floor(math.log10((high - low) / 5))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * 6 >= high - low)
        return cls(math.floor(low / step) * step, math.ceil(high / step) * step, step)

    def marks(self) -> list[float]:
        return [self.low + i * self.step for i in range(round((self.high - self.low) / self.step) + 1)]

    def share(self, value: float) -> float:
        """Where a value stands between the ends, 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def _x(axis: _Axis, value: float) -> float:
    return LEFT + axis.share(value) * (WIDTH - LEFT - RIGHT)


def _y(axis: _Axis, value: float) -> float:
    return HEIGHT - BOTTOM - axis.share(value) * (HEIGHT - TOP - BOTTOM)


def _grid(across: _Axis, up: _Axis) -> list[str]:
    """The marks of both axes and their numbers."""
    parts = []
    for mark in across.marks():
        x = f"{_x(across, mark):.1f}"
        parts.append(f'<path d="M{x} {TOP}V{HEIGHT - BOTTOM}" stroke="currentColor" stroke-opacity=".12"/>')
        parts.append(
            f'<text x="{x}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{_number(mark, across.step)}</text>'
        )
    for mark in up.marks():
        y = _y(up, mark)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="currentColor" stroke-opacity=".12"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(mark, up.step)}</text>')
    return parts


def _number(value: float, step: float) -> str:
    """A mark's number, without the noise of its last digits."""
    return f"{0.0 if abs(value) < step / 2 else value:.4g}"


def _drawn(number: int, points: Sequence[tuple[float, float]]) -> list[str]:
    """Curve `number` through pixels; broken where the colours have been used up."""
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
    if len(points) < 2:
        return [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    broken = f' stroke-dasharray="{dash}"' if dash else ""
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"{broken}/>']


def _legend(names: Sequence[tuple[int, str]]) -> list[str]:
    """The names of the curves, one below the other at the upper right. names: with their curve's number"""
    parts = []
    for row, (number, name) in enumerate(names):
        y, right = TOP + 12 + 15 * row, WIDTH - RIGHT
        parts.append(f'<text x="{right - 22}" y="{y}" text-anchor="end">{escape(name)}</text>')
        parts += _drawn(number, [(right - 18, y - 4), (right - 2, y - 4)])
    return parts


def bar(value: int, most: int, width: int) -> str:
    """A bar of up to `width` cells for value of `most`; what is not 0 shows at least an eighth of a cell."""
    if value <= 0:
        return ""
    eighths = max(1, round(8 * width * value / most))
    return FULL * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def bars(rows: Rows, width: int = 40) -> list[str]:
    """A horizontal bar chart as lines: label, bar, count and share."""
    total, most = sum(count for _, count in rows), max((count for _, count in rows), default=0)
    margin = max((len(label) for label, _ in rows), default=0)
    digits = len(f"{most:,}")
    return [
        f"{label:>{margin}} {count:>{digits},} {100 * count / max(total, 1):>5.1f} % {bar(count, most, width)}".rstrip()
        for label, count in rows
    ]


def svg_bars(title: str, rows: Rows) -> str:
    """A horizontal bar chart as one <svg> element, each bar with its count and share."""
    total, most = sum(count for _, count in rows), max((count for _, count in rows), default=0)
    height = TITLE + len(rows) * (BAR + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{LABELS + WIDEST + COUNTS}" height="{height}" '
        f'viewBox="0 0 {LABELS + WIDEST + COUNTS} {height}" font-family="sans-serif" font-size="12" fill="currentColor">',
        f"<title>{escape(title)}</title>",
        f'<text x="0" y="16" font-size="14" font-weight="600">{escape(title)}</text>',
    ]
    for i, (label, count) in enumerate(rows):
        top = TITLE + i * (BAR + GAP)
        length = WIDEST * count / max(most, 1)
        told = f"{count:,} ({100 * count / max(total, 1):.1f} %)"
        parts.append(
            f'<text x="{LABELS - 8}" y="{top + 13}" text-anchor="end">{escape(label)}</text>'
            f'<rect x="{LABELS}" y="{top}" width="{length:.1f}" height="{BAR}" fill="#0072b2"/>'
            f'<text x="{LABELS + length + 6:.1f}" y="{top + 13}" fill-opacity=".7">{told}</text>'
        )
    return "\n".join([*parts, "</svg>"])
