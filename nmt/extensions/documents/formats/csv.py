"""Tables (CSV, TSV): translates the cells of the chosen columns, or of the columns named after the model's languages.

Records that do not change are written exactly as they were read.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

from nmt import register
from nmt.errors import UserError, quoted
from nmt.extensions.documents.document import Unit, UnitDocument, UnitFormat, damaged, decoded, is_language
from nmt.extensions.documents.formats.options import TableOptions
from nmt.extensions.documents.markers import Markers
from nmt.formats.base import Languages

Quoting = Literal[0, 1, 2, 3]  # constants of the csv module
_DELIMITERS: Final = ",;\t|"
_NAMED_COLUMNS: Final = (("source", "target"), ("original", "translation"))  # usual names in tables for translators


class _Columns(NamedTuple):
    """The column indices of a text and its translation. Both may be the same column."""

    source: int
    target: int


class TableDocument(UnitDocument):
    """A table. Raises InputError if it is damaged.

    columns: columns to translate, by name or number: SOURCE or SOURCE:TARGET
    """

    columns: Sequence[str] = ()

    def __init__(self, content: bytes, place: str) -> None:
        self._place = place
        text, self._encoding = decoded(content, place, "table")
        self._lines = list(io.StringIO(text, newline=""))  # each includes its line ending
        self._delimiter = max(_DELIMITERS, key=text.partition("\n")[0].count)
        self._has_quotes = self._delimiter != "\t" or _is_quoted(self._lines)
        self._rows = list[_Row]()
        quoting: Quoting = csv.QUOTE_MINIMAL if self._has_quotes else csv.QUOTE_NONE
        reader = csv.reader(self._lines, delimiter=self._delimiter, quoting=quoting, strict=True)
        first = 0
        try:
            for cells in reader:
                self._rows.append(_Row(cells, first, reader.line_num))
                first = reader.line_num
        except csv.Error as error:
            raise damaged(place, "CSV", error, reader.line_num) from None

    def units(self, languages: Languages) -> list[Unit]:
        """The cells to translate, row by row."""
        header = [name.strip() for name in self._rows[0].cells] if self._rows else []
        columns = self._named(header) if self.columns else [_of_languages(header, languages, self._place)]
        names = {name for column in columns for name in header[column.source : column.source + 1]}
        rows = (
            self._rows[1:]
            if not self.columns or names & {name for column in self.columns for name in _ends(column)}
            else self._rows
        )
        return [self._unit(row, column) for row in rows for column in columns if column.source < len(row.cells)]

    def _named(self, header: Sequence[str]) -> list[_Columns]:
        """The columns that the option names. Raises UserError if the table lacks one."""
        return [_Columns(*(self._number(name, header) for name in _ends(column))) for column in self.columns]

    def _number(self, name: str, header: Sequence[str]) -> int:
        if name in header:
            return header.index(name)
        if name.isdigit() and 1 <= int(name) <= max(len(header), 1) + 1:
            return int(name) - 1
        raise UserError(
            f"{self._place}: no column '{quoted(name)}' (columns: {quoted(', '.join(header))}; column numbers from 1 also work)"
        )

    def _unit(self, row: "_Row", column: _Columns) -> Unit:
        markers = Markers()
        text = markers.mark_tags(row.cells[column.source])
        is_done = column.target != column.source and any(
            cell.strip() for cell in row.cells[column.target : column.target + 1]
        )
        write = partial(self._write, row, column.target, markers)
        return Unit(row.first + 1, text, write, markers, state="already translated" if is_done else "open")

    def _write(self, row: "_Row", column: int, markers: Markers, translation: str) -> None:
        row.cells += [""] * (column + 1 - len(row.cells))
        row.cells[column] = markers.restore(translation)
        row.is_changed = True

    def content(self) -> bytes:
        """The table in its original encoding."""
        return self._encoding.written("".join(map(self._written, self._rows)))

    def _written(self, row: "_Row") -> str:
        raw = "".join(self._lines[row.first : row.end])
        if not row.is_changed:
            return raw
        ending = raw[len(raw.rstrip("\r\n")) :]
        if not self._has_quotes:
            return self._delimiter.join(row.cells) + ending
        is_all_quoted = raw.startswith('"') and raw.rstrip("\r\n").endswith('"')
        quoting: Quoting = csv.QUOTE_ALL if is_all_quoted else csv.QUOTE_MINIMAL
        output = io.StringIO(newline="")
        csv.writer(output, delimiter=self._delimiter, quoting=quoting, lineterminator=ending).writerow(row.cells)
        return output.getvalue()


@dataclass
class _Row:
    """A record. first, end: its first line, and the line after its last one"""

    cells: list[str]
    first: int
    end: int
    is_changed: bool = False


def _is_quoted(lines: Sequence[str]) -> bool:
    """Whether quotation marks only delimit tab-separated cells, as in spreadsheet exports, and are not part of the text."""
    try:
        return any('"' in line[:1] or '\t"' in line for line in lines) and all(
            csv.reader(lines, delimiter="\t", strict=True)
        )
    except csv.Error:
        return False


def _ends(column: str) -> tuple[str, str]:
    """The column names in SOURCE or SOURCE:TARGET."""
    source, divider, target = column.partition(":")
    return source, target if divider else source


def _of_languages(header: Sequence[str], languages: Languages, place: str) -> _Columns:
    """Columns with usual names in translators' tables, or else those named after the model's languages. Raises UserError."""
    names = [name.casefold() for name in header]
    for pair in _NAMED_COLUMNS:
        if set(pair) <= set(names):
            return _Columns(*map(names.index, pair))
    of = [next((i for i, name in enumerate(header) if is_language(name, [code])), None) for code in languages]
    if of[0] is not None and of[1] is not None:
        return _Columns(of[0], of[1])
    raise UserError(
        f"{place}: no columns named {languages.source} and {languages.target}, or source and target, among "
        f"'{quoted(', '.join(header))}' (use --columns NAME or --columns SOURCE:TARGET; for plain text, add --format text)"
    )


@register("format", "csv", TableOptions)
class TableFormat(UnitFormat):
    """Tables (CSV, TSV): translates the cells of chosen columns, in place or into another column."""

    document = TableDocument

    def read(self, path: Path) -> UnitDocument:
        document = super().read(path)
        assert isinstance(document, TableDocument)
        document.columns = self.options.columns
        return document
