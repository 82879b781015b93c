"""Pictures of attention: a page to click through, a picture for a paper, or characters for a terminal."""

import base64
import hashlib
import json
import zlib
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from string import Template
from typing import Any, Final

import numpy as np
from rich.cells import cell_len

from nmt.artefact import check_file_name, write_file
from nmt.errors import InputError, quoted
from nmt.pictures.attention_maps import KINDS, AttentionMaps, visible_token
from nmt.pictures.attention_picture import render_attention
from nmt.pictures.figures import check_matplotlib
from nmt.pictures.page import read_asset

ATTENTION_ENDINGS: Final = (".html", ".svg", ".png")
SHADES: Final = " ░▒▓█"
THRESHOLDS: Final = (0.1, 0.25, 0.5, 0.75)  # the least weight of each shade after the first
CELL_CHARACTERS: Final = 2  # of a weight: about a square, and a wide character fits above it
MAX_TOKEN_CELLS: Final = 16  # of a terminal


def check_picture(path: Path) -> None:
    """Raise UserError unless attention can be drawn into a file of this name; for a check before the work."""
    check_file_name(path, ATTENTION_ENDINGS, "attention is drawn")
    if path.suffix.lower() != ".html":
        check_matplotlib(quoted(path))


def write_attention(path: Path, sentences: Sequence[AttentionMaps]) -> None:
    """Draw into a file: all sentences as a page (.html), or the first as a picture (.svg, .png), by the file's name.

    Raises UserError as check_picture does, InputError without a sentence, ResourceError if it cannot be written.
    """
    check_picture(path)
    if not sentences:
        raise InputError(f"{quoted(path)}: not written: no line was translated whose attention could be drawn")
    ending = path.suffix.lower()
    write_file(
        path, attention_page(sentences).encode() if ending == ".html" else render_attention(sentences[0], ending[1:])
    )


def attention_page(sentences: Sequence[AttentionMaps]) -> str:
    """A whole page. Its policy allows this one script, whatever the tokens are, and forbids every request."""
    # ASCII, whatever the tokens are; JSON has "<" in strings only: escaped, no token can end the element of the data
    data = json.dumps(list(map(_packed, sentences)), separators=(",", ":")).replace("<", r"\u003c")
    script = read_asset("attention.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    page = Template(read_asset("attention.html"))
    return page.substitute(policy=policy, style=read_asset("attention.css"), data=data, script=script)


def _packed(maps: AttentionMaps) -> dict[str, Any]:
    """A sentence as the script reads it. weights: bytes, in 1/255, in the order of the array, by zlib and base64"""
    kinds = {}
    for kind, name in KINDS.items():
        if kind in maps.weights:
            weights = maps.weights[kind]
            queries, keys = maps.labels(kind)
            levels = np.rint(255 * weights.clip(0, 1)).astype(np.uint8)
            packed = base64.b64encode(zlib.compress(levels.tobytes())).decode()
            sizes = {"layers": weights.shape[0], "heads": weights.shape[1], "first": maps.first_shown(kind)}
            kinds[kind] = {"name": name, "queries": queries, "keys": keys, **sizes, "weights": packed}
    return {"source": " ".join(maps.source), "target": " ".join(maps.target), "kinds": kinds}


def terminal_map(maps: AttentionMaps, width: int = 80) -> str:
    """Cross-attention as lines of characters, a row a query; keys that do not fit into `width` cells follow below."""
    name, weights = maps.mean_map("cross")
    queries, keys = ([visible_token(token, MAX_TOKEN_CELLS) for token in tokens] for tokens in maps.labels("cross"))
    margin = max(map(cell_len, queries))
    labels = [" " * (margin - cell_len(query)) + query for query in queries]
    shades = [[SHADES[i] * CELL_CHARACTERS for i in row] for row in np.searchsorted(THRESHOLDS, weights, side="right")]
    num_columns = max(1, (width - margin - len(" ││")) // CELL_CHARACTERS)
    lines = [
        f"{name}   " + "  ".join(f"{shade} {least:g}" for shade, least in zip(SHADES[1:], THRESHOLDS, strict=True))
    ]
    for start in range(0, len(keys), num_columns):
        panel = slice(start, start + num_columns)
        lines += [" " * (margin + len(" │")) + line for line in _upright(keys[panel])]
        lines += [f"{label} │{''.join(row[panel])}│" for label, row in zip(labels, shades, strict=True)]
    return "\n".join(lines) + "\n"


def _upright(labels: Sequence[str]) -> list[str]:
    """Labels side by side, each CELL_CHARACTERS wide and read downwards, to stand above their columns."""
    from_below = zip_longest(*(reversed(_letters(label)) for label in labels), fillvalue=" " * CELL_CHARACTERS)
    return ["".join(row).rstrip() for row in from_below][::-1]


def _letters(label: str) -> list[str]:
    """The characters of a label, each with its combining characters, CELL_CHARACTERS wide."""
    letters: list[str] = []
    for character in label:
        if letters and cell_len(character) == 0:
            letters[-1] += character
        else:
            letters.append(character)
    return [letter + " " * (CELL_CHARACTERS - cell_len(letter)) for letter in letters]
