"""Self-contained web pages: no scripts, and nothing that a browser would have to load."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template


def read_asset(name: str) -> str:
    """The text of an installed JavaScript, CSS or HTML file in this folder."""
    return files(__package__).joinpath(name).read_text("utf-8")


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]], rule_above: int | None = None) -> str:
    """A <table> element.

    header: texts of the column headings
    rows: cells as HTML, escaped by the caller
    rule_above: index of the row with a rule above it
    """
    head = "".join(f"<th>{escape(heading)}</th>" for heading in header)
    body = "\n".join(
        ('<tr class="rule">' if number == rule_above else "<tr>")
        + "".join(f"<td>{cell}</td>" for cell in row)
        + "</tr>"
        for number, row in enumerate(rows)
    )
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def html_page(title: str, parts: Iterable[str]) -> str:
    """A whole page. parts: HTML, escaped by the caller"""
    page = Template(read_asset("page.html"))
    return page.substitute(title=escape(title), style=read_asset("page.css"), body="\n".join(parts))
