"""Tables as aligned text, Markdown, CSV or LaTeX, each with its own escapes."""

import csv
import io
import re
from collections.abc import Container, Iterator, Sequence
from typing import Final, Literal

from nmt.cli.tables import table_lines

TableStyle = Literal["text", "markdown", "csv", "latex"]

PLUS_MINUS: Final = "+-"  # sign between a mean and its deviation in cells
# The characters that Markdown would read as markup. An underscore inside a word is not markup.
MARKDOWN: Final = re.compile(r"[\\`*<>\[\]|~&]|(?<![^\W_])_|_(?![^\W_])")
LATEX: Final = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
}


def formatted_table(
    rows: Sequence[Sequence[str]], table: TableStyle, right: Container[int] = (), rules: Container[int] = ()
) -> Iterator[str]:
    """The lines of a table.

    rows: cells of one line each, without markup; the first row is the header
    right: indices of the right-aligned columns
    rules: indices of the rows with a rule above them, in LaTeX only; the header has index 0
    """
    columns = range(len(rows[0]))
    if table == "text":
        yield from table_lines(rows, right)
    elif table == "csv":
        for row in rows:
            file = io.StringIO()
            csv.writer(file, lineterminator="").writerow(row)
            yield file.getvalue()
    elif table == "markdown":
        header, *body = (f"| {' | '.join(map(markdown_text, row))} |" for row in rows)
        yield from (header, f"|{'|'.join(' ---: ' if column in right else ' --- ' for column in columns)}|", *body)
    else:
        yield f"\\begin{{tabular}}{{{''.join('r' if column in right else 'l' for column in columns)}}}"
        yield "\\hline"
        for number, row in enumerate(rows):
            yield from ["\\hline"] if number == 1 or number in rules else []
            yield f"{' & '.join(map(latex_text, row))} \\\\"
        yield from ("\\hline", "\\end{tabular}")


def markdown_text(text: str) -> str:
    """Escape text for Markdown, including tables."""
    return MARKDOWN.sub(r"\\\g<0>", text).replace(PLUS_MINUS, "±")


def latex_text(text: str) -> str:
    """Escape text for LaTeX. Characters beyond ASCII need an engine that reads UTF-8, as all current engines do."""
    return "".join(LATEX.get(character, character) for character in text).replace(PLUS_MINUS, r"$\pm$")
