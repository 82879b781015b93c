"""Tables as plain text, aligned by the width that characters have on a terminal."""

import io
from collections.abc import Container, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

MAX_LINE_CELLS: Final = 100_000  # no cell is cut or wrapped to fit a terminal


def table_lines(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """A line a row, columns aligned and two spaces apart; cells are plain text of one line, without markup.

    rows: cells; the first row may be the header
    right: numbers of the columns aligned at the right, counted from 0
    """
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    if not rows:
        return []
    for column in range(len(rows[0])):
        table.add_column(justify="right" if column in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    output = io.StringIO()
    Console(file=output, width=MAX_LINE_CELLS, color_system=None).print(table)
    return [line.rstrip() for line in output.getvalue().split("\n")[:-1]]


def table_text(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> str:
    """A table as text, see `table_lines`."""
    return "".join(f"{line}\n" for line in table_lines(rows, right))
