"""Formats tables as plain text, aligned by the width of characters on a terminal."""

import io
from collections.abc import Container, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

MAX_LINE_CELLS: Final = 100_000  # so wide that no cell is truncated or wrapped


def table_lines(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """One line per row, with aligned columns two spaces apart. Cells are plain text without markup.

    rows: the cells; the first row may be a header
    right: indices of the columns that are aligned to the right
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
