"""A web page that holds everything itself: no script, and nothing that a browser would have to fetch."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

STYLE: Final = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 74em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse }
th, td { padding: .2em .8em .2em 0; text-align: left; vertical-align: top; font-variant-numeric: tabular-nums }
tr.line { border-top: 1px solid }
.error { color: #c62828; font-weight: 600 } .warning { color: #b26a00; font-weight: 600 } .note { opacity: .7 }
code { font-size: .85em; overflow-wrap: anywhere }
svg { margin: 1em 1em 1em 0; max-width: 100%; height: auto }
"""


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str]], line_before: int | None = None) -> str:
    """A table. rows: cells as HTML, already escaped; line_before: the row that a line is drawn above"""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "\n".join(
        ('<tr class="line">' if number == line_before else "<tr>")
        + "".join(f"<td>{cell}</td>" for cell in row)
        + "</tr>"
        for number, row in enumerate(rows)
    )
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def html_page(title: str, parts: Iterable[str]) -> str:
    """A whole page. parts: HTML"""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            f'<html lang="en"><head><meta charset="utf-8"/><title>{escape(title)}</title>',
            f'<meta name="viewport" content="width=device-width"/><style>{STYLE}</style></head><body>',
            f"<h1>{escape(title)}</h1>",
            *parts,
            "</body></html>\n",
        ]
    )
