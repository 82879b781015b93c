"""Tables as plain text: columns are aligned by the cells of a terminal, and what a cell holds is what is printed."""

import pytest

from nmt.cli.tables import table_lines


def test_columns_are_aligned_and_two_spaces_apart():
    rows = [["system", "BLEU"], ["a", "9.5"], ["longer name", "12.25"]]
    assert table_lines(rows, right={1}) == ["system        BLEU", "a              9.5", "longer name  12.25"]
    assert table_lines(rows) == ["system       BLEU", "a            9.5", "longer name  12.25"]


def test_wide_characters_take_two_cells():
    assert table_lines([["猫", "x"], ["abc", "y"]]) == ["猫   x", "abc  y"]


@pytest.mark.parametrize(
    "cell", ["[bold]x[/bold]", "[/x]", ":smile:", "12 'a' http://x.de", "w" * 5000, "a  b c " * 200 + "."]
)
def test_no_cell_is_truncated_or_read_as_markup(cell):
    assert table_lines([[cell, "end"]]) == [f"{cell}  end"]


def test_empty_tables_and_empty_cells_are_printed():
    assert table_lines([]) == []
    assert table_lines([["", "a"], ["", ""]]) == ["  a", ""]
