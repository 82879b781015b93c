"""Reads columns of tables. The column numbers or names follow the file name: `corpus.tsv:1,3`, `corpus.csv:en,de`."""

import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from nmt import register
from nmt.errors import InputError, UserError, quoted
from nmt.extensions.archives.storages.options import TableColumnsOptions
from nmt.log import log
from nmt.storages.base import Storage, open_text, text_exists
from nmt.storages.streams import ChunkReader, Stream, open_decompressed
from nmt.text.corpus import BOM, COMPRESSED_NAME, lines_within

COLUMNS: Final = re.compile(r"(.+):([^:/,]+(?:,[^:/,]+)*)", re.DOTALL)
CSV_NAME: Final = re.compile(rf"\.csv{COMPRESSED_NAME}", re.IGNORECASE)
TSV_NAME: Final = re.compile(rf"\.tsv{COMPRESSED_NAME}", re.IGNORECASE)
DELIMITERS: Final = ",;\t"  # possible delimiters of CSV files; the most frequent one in the first line is used
HEADINGS: Final = re.compile(  # common column names
    r"((source|target|src|tgt|trg|original|translation|sentence)[_ -]?(text|lang|language|sentence|[12])?|text|score|id|"
    r"en|de|fr|es|it|pt|nl|ru|zh|ja|ko|ar|hi|tr|pl|cs|sv)"
)


@register("storage", "table-columns", TableColumnsOptions)
class TableColumns(Storage):
    """Reads columns of TSV files, and of CSV files if their names end with `.csv`."""

    def holds(self, path: Path) -> bool:
        match = COLUMNS.fullmatch(str(path))
        return match is not None and text_exists(Path(match[1]))

    @contextmanager
    def open(self, path: Path, whole: bool) -> Iterator[Stream]:
        match = COLUMNS.fullmatch(str(path))
        assert match is not None
        file = Path(match[1])
        with open_decompressed(file) if file.exists() else open_text(file, whole) as content:
            is_csv = CSV_NAME.search(file.name) is not None
            rows = enumerate(_csv_rows(content, file) if is_csv else _rows(content, file), 1)
            columns = _numbers(match[2].split(","), rows, file)
            lines = _chosen(rows, columns, file, is_csv)
            yield Stream(ChunkReader(lines), str(path), content.disk)

    def text_of(self, content: Stream, path: Path) -> Stream:
        if TSV_NAME.search(path.name):
            _warn_of_cells(path, *content.peek().partition(b"\n")[0].removesuffix(b"\r").split(b"\t"))
        return content


def _rows(content: Stream, path: Path) -> Iterator[list[bytes]]:
    for number, line in enumerate(lines_within(content, path), 1):
        line = line.removeprefix(BOM) if number == 1 else line
        yield line.removesuffix(b"\n").removesuffix(b"\r").split(b"\t")


def _csv_rows(content: Stream, path: Path) -> Iterator[list[bytes]]:
    lines = (line.decode(errors="surrogateescape") for line in lines_within(content, path))
    first = next(lines, "").removeprefix("\ufeff")
    delimiter = max(DELIMITERS, key=first.count)
    reader = csv.reader((line for part in ([first], lines) for line in part if first), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            yield [re.sub(r"[\t\r\n]+", " ", cell).encode(errors="surrogateescape") for cell in row]
    except csv.Error as error:
        raise InputError(f"{quoted(path)}:{reader.line_num}: {error} (fix the line)") from None


def _numbers(columns: list[str], rows: Any, path: Path) -> list[int]:
    """The indices of the columns. If columns are given by name, the first row is read."""
    if all(column.isdecimal() and int(column) for column in columns):
        return [int(column) - 1 for column in columns]
    _, first = next(rows, (1, []))
    names = [cell.decode(errors="replace").strip() for cell in first]
    for column in columns:
        if names.count(column) > 1:
            raise UserError(f"{quoted(path)}: {names.count(column)} columns are named '{quoted(column)}' (use numbers)")
        if column not in names:
            known = ", ".join(map(quoted, names)) or "none"
            raise UserError(
                f"{quoted(path)}: no column '{quoted(column)}' (columns in the first line: {known}; numbers also work)"
            )
    return [names.index(column) for column in columns]


def _chosen(rows: Any, columns: list[int], path: Path, is_csv: bool) -> Iterator[bytes]:
    for number, row in rows:
        if number == 1:
            _warn_of_cells(path, *row, is_csv=is_csv)
        if len(row) <= max(columns):
            cells = f"{len(row)} column{'s' if len(row) != 1 else ''}"
            raise InputError(
                f"{quoted(path)}:{number}: the line has {cells}, but column {max(columns) + 1} was requested (fix the line)"
            )
        yield b"\t".join(row[column] for column in columns) + b"\n"


@cache
def _warn_of_cells(path: Path, *row: bytes, is_csv: bool = False) -> None:
    """Warn once if the first line seems to hold column names, or if its cells are quoted. row: the cells of the first line"""
    cells, name = [cell.removeprefix(BOM).decode(errors="replace") for cell in row], quoted(path)
    if not is_csv and len(cells) > 1 and all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells):
        log.warn(
            f"{name}: the quotes around the cells are read as part of the text (if this is CSV, rename it and use FILE.csv:1,2)"
        )
    elif len(cells) > 1 and all(HEADINGS.fullmatch(cell.strip().lower()) for cell in cells):
        columns = ",".join(cell.strip() for cell in cells[:2])
        log.warn(
            f"{name}: the first line seems to hold column names, but is read as text (choose columns by name: {name}:{columns})"
        )
