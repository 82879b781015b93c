"""Pictures of attention: a page to click through, a picture for a paper, or characters for a terminal."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from rich.cells import cell_len

from nmt.artefact import check_file_name, write_file
from nmt.errors import InputError, quoted
from nmt.pictures.attention_maps import AttentionMaps, visible_token
from nmt.pictures.attention_page import attention_page
from nmt.pictures.attention_picture import render_attention
from nmt.pictures.figures import check_matplotlib

ATTENTION_WRITERS: Final[Mapping[str, Callable[[Sequence[AttentionMaps]], bytes]]] = {
    ".html": lambda sentences: attention_page(sentences).encode(),
    ".svg": lambda sentences: render_attention(sentences[0], "svg"),
    ".png": lambda sentences: render_attention(sentences[0], "png"),
}
SHADES: Final = " ░▒▓█"
THRESHOLDS: Final = (0.1, 0.25, 0.5, 0.75)  # the least weight of each shade after the first
CELL_CHARACTERS: Final = 2  # of a weight: about a square, and a wide character fits above it
MAX_TOKEN_CELLS: Final = 16  # of a terminal


def check_picture(path: Path) -> None:
    """Raise UserError unless attention can be drawn into a file of this name; for a check before the work."""
    check_file_name(path, ATTENTION_WRITERS, "attention is drawn")
    if path.suffix.lower() != ".html":
        check_matplotlib(quoted(path))


def write_attention(path: Path, sentences: Sequence[AttentionMaps]) -> None:
    """Draw into a file: all sentences as a page (.html), or the first as a picture (.svg, .png), by the file's name.

    Raises UserError as check_picture does, InputError without a sentence, ResourceError if it cannot be written.
    """
    check_picture(path)
    if not sentences:
        raise InputError(f"{quoted(path)}: not written: no line was translated whose attention could be drawn")
    write_file(path, ATTENTION_WRITERS[path.suffix.lower()](sentences))


def terminal_map(
    maps: AttentionMaps, kind: str = "cross", layer: int | None = None, head: int | None = None, width: int = 80
) -> str:
    """A map as lines of characters, a row a query; keys that do not fit into `width` follow below.

    layer: counted from 0; None is the layer to show first
    head: counted from 0; None is the mean of the heads
    width: cells of the terminal
    """
    layer = maps.first_shown(kind) if layer is None else layer
    weights = maps.map_of(kind, layer, head)
    queries, keys = ([visible_token(token, MAX_TOKEN_CELLS) for token in tokens] for tokens in maps.labels(kind))
    margin = max(map(cell_len, queries))
    labels = [" " * (margin - cell_len(query)) + query for query in queries]
    shades = [[SHADES[i] * CELL_CHARACTERS for i in row] for row in np.searchsorted(THRESHOLDS, weights, side="right")]
    num_columns = max(1, (width - margin - len(" ││")) // CELL_CHARACTERS)
    legend = "  ".join(f"{shade} {least:g}" for shade, least in zip(SHADES[1:], THRESHOLDS, strict=True))
    lines = [f"{maps.name_of(kind, layer, head)}   {legend}"]
    for start in range(0, len(keys), num_columns):
        panel = slice(start, start + num_columns)
        lines += [" " * (margin + len(" │")) + line for line in _upright(keys[panel])]
        lines += [f"{label} │{''.join(row[panel])}│" for label, row in zip(labels, shades, strict=True)]
    return "\n".join(lines) + "\n"


def _upright(labels: Sequence[str]) -> list[str]:
    """Labels side by side, each CELL_CHARACTERS wide and read downwards, to stand above their columns."""
    columns = [_letters(label) for label in labels]
    height = max(map(len, columns))
    blank = " " * CELL_CHARACTERS
    padded = [[blank] * (height - len(column)) + column for column in columns]
    return ["".join(row).rstrip() for row in zip(*padded, strict=True)]


def _letters(label: str) -> list[str]:
    """The characters of a label, each with its combining characters, CELL_CHARACTERS wide."""
    letters: list[str] = []
    for character in label:
        if letters and cell_len(character) == 0:
            letters[-1] += character
        else:
            letters.append(character)
    return [letter + " " * (CELL_CHARACTERS - cell_len(letter)) for letter in letters]
