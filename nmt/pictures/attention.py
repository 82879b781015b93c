"""Pictures of attention: a page to click through, one picture for a paper, or characters for a terminal."""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from rich.cells import cell_len

from nmt.artefact import check_file_name, write_file
from nmt.errors import InputError, UserError, quoted
from nmt.pictures.attention_maps import AttentionMaps, shown
from nmt.pictures.attention_page import attention_page
from nmt.pictures.attention_picture import as_png, as_svg, picture

DRAWN: Final[Mapping[str, Callable[[Sequence[AttentionMaps]], bytes]]] = {
    ".html": lambda attended: attention_page(attended).encode(),
    ".svg": lambda attended: as_svg(picture(attended[0])).encode(),
    ".png": lambda attended: as_png(picture(attended[0])),
}
SHADES: Final = " ░▒▓█"
THRESHOLDS: Final = (0.1, 0.25, 0.5, 0.75)  # the least weights of the shades but the first
CELL: Final = 2  # characters of a terminal that a weight takes: about a square, and a wide character fits above it
LONGEST: Final = 16  # cells of a token in a terminal


def check_picture(path: Path) -> None:
    """UserError unless attention can be drawn into a file of this name; to be asked before the work is done."""
    if path.suffix.lower() == ".png" and find_spec("matplotlib") is None:
        raise UserError(
            f"{quoted(path)}: png needs the package matplotlib (pip install 'nmt-toolkit[plots]'; svg and html do not)"
        )
    check_file_name(path, DRAWN, "attention is drawn")


def write_attention(path: Path, attended: Sequence[AttentionMaps]) -> None:
    """Draw into a file: all sentences as a page (.html), or the first as a picture (.svg, .png), by the file's name.

    Raises UserError as check_picture does, InputError where there is no sentence, ResourceError where it cannot be written.
    """
    check_picture(path)
    if not attended:
        raise InputError(f"{quoted(path)}: not written: no line was translated whose attention could be drawn")
    write_file(path, DRAWN[path.suffix.lower()](attended))


def terminal_map(
    attended: AttentionMaps, kind: str = "cross", layer: int | None = None, head: int | None = None, width: int = 80
) -> str:
    """A map as lines of characters, a row a query; keys that do not fit into `width` follow below.

    layer, head: counted from 0; by default the one to show first, and the mean of its heads
    """
    layer = attended.first_shown(kind) if layer is None else layer
    weights = attended.map_of(kind, layer, head)
    queries, keys = ([shown(label, LONGEST) for label in labels] for labels in attended.labels(kind))
    margin = max(map(cell_len, queries))
    rows = [" " * (margin - cell_len(query)) + query for query in queries]
    shades = [[SHADES[i] * CELL for i in row] for row in np.searchsorted(THRESHOLDS, weights, side="right")]
    at_once = max(1, (width - margin - len(" ││")) // CELL)
    legend = "  ".join(f"{shade} {least:g}" for shade, least in zip(SHADES[1:], THRESHOLDS, strict=True))
    lines = [f"{attended.name_of(kind, layer, head)}   {legend}"]
    for start in range(0, len(keys), at_once):
        part = slice(start, start + at_once)
        lines += [" " * (margin + len(" │")) + line for line in _upright(keys[part])]
        lines += [f"{query} │{''.join(row[part])}│" for query, row in zip(rows, shades, strict=True)]
    return "\n".join(lines) + "\n"


def _upright(labels: Sequence[str]) -> list[str]:
    """Labels beside each other, each CELL wide and read downwards, to stand above their columns."""
    columns = [_letters(label) for label in labels]
    height = max(map(len, columns))
    blank = " " * CELL
    padded = [[blank] * (height - len(column)) + column for column in columns]
    return ["".join(row).rstrip() for row in zip(*padded, strict=True)]


def _letters(label: str) -> list[str]:
    """The characters of a label, each with what combines with it, CELL wide."""
    letters: list[str] = []
    for character in label:
        if letters and cell_len(character) == 0:
            letters[-1] += character
        else:
            letters.append(character)
    return [letter + " " * (CELL - cell_len(letter)) for letter in letters]
