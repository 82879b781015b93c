"""Bar charts as plain text: block characters for a terminal, SVG, and a web page that holds everything itself."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

Rows = Sequence[tuple[str, int]]

EIGHTHS: Final = " ▏▎▍▌▋▊▉"  # a cell filled by 0 to 7 eighths from the left
FULL: Final = "█"

# In pixels.
LABELS: Final = 130
BAR: Final = 18
GAP: Final = 4
WIDEST: Final = 420
COUNTS: Final = 150
TITLE: Final = 30

STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222;background:#fff}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em .2em 0;text-align:left;vertical-align:top}"
    ".error{color:#b00020;font-weight:600}.warning{color:#955800;font-weight:600}.note{color:#555}"
    "code{font-size:.85em;overflow-wrap:anywhere}svg{display:block;margin:1em 0;max-width:100%}"
)


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
        f'viewBox="0 0 {LABELS + WIDEST + COUNTS} {height}" font-family="system-ui,sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<text x="0" y="16" font-size="14" font-weight="600">{escape(title)}</text>',
    ]
    for i, (label, count) in enumerate(rows):
        top = TITLE + i * (BAR + GAP)
        length = WIDEST * count / max(most, 1)
        told = f"{count:,} ({100 * count / max(total, 1):.1f} %)"
        parts.append(
            f'<text x="{LABELS - 8}" y="{top + 13}" text-anchor="end">{escape(label)}</text>'
            f'<rect x="{LABELS}" y="{top}" width="{length:.1f}" height="{BAR}" fill="#3b6ea5"/>'
            f'<text x="{LABELS + length + 6:.1f}" y="{top + 13}" fill="#555">{told}</text>'
        )
    return "\n".join([*parts, "</svg>"])


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. rows: cells as HTML, already escaped"""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def html_page(title: str, parts: Iterable[str]) -> str:
    """A whole page without script, and without anything that a browser would have to fetch. parts: HTML"""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
            f"<style>{STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *parts,
            "</body></html>\n",
        ]
    )
