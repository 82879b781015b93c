"""Attention maps of a sentence pair: an interactive page, a picture for a paper, or characters for a terminal."""

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import zip_longest
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size

from nmt.batch import flatten, make_batch
from nmt.device import device_of
from nmt.errors import InputError, UserError, quoted
from nmt.extensions.watch.pictures.figures import POINTS_PER_INCH, check_file_name, check_matplotlib, render_figure
from nmt.extensions.watch.pictures.page import read_asset
from nmt.extensions.watch.pictures.tokens import readable_text, readable_token, word_numbers
from nmt.files import write_output
from nmt.models.base import Model
from nmt.symbols import BOS, EOS, SYMBOLS
from nmt.text.pipeline import Pipeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: Final = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}
JOINERS: Final = "\u200c\u200d"  # not printable, but they shape neighbouring letters (Persian, Indic scripts, emoji)
ATTENTION_ENDINGS: Final = (".html", ".svg", ".png")
SHADES: Final = " ░▒▓█"
THRESHOLDS: Final = (0.1, 0.25, 0.5, 0.75)  # the smallest weight of each shade after the first
CELL_CHARACTERS: Final = 2  # width of a cell: nearly square, and wide enough for any character above it
MAX_TOKEN_CELLS: Final = 16  # maximum width of a token on a terminal

# A picture for a paper: a large map with its tokens, and small maps of every head below it.
COLOUR: Final = "#08519c"  # colour of a weight of 1; 0 is white
CELL_POINTS: Final = 16.0  # size of a cell of the large map
MAX_MAP_POINTS: Final = 2400.0  # maximum size of the large map; longer sentences have smaller cells
SMALL_MAP_POINTS: Final = 84.0  # longer side of a small map
MARGIN_POINTS, GAP_POINTS, LINE_POINTS = 16, 8, 20  # margin, gap between small maps, height of a line of text
FONT_POINTS, HEADING_POINTS = 11.0, 13.0
CHARACTER_WIDTH: Final = 0.6  # upper estimate of the width of a character, as a multiple of the font size
MAX_LABEL_CELLS: Final = 24  # maximum length of a label, in cells of a terminal


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of a model for a sentence pair.

    source: tokens, including EOS
    target: tokens, including EOS; the query of a token is the decoder's state that predicts it
    weights: by kind ("encoder", "decoder", "cross"), an array of shape (layers, heads, queries, keys) in which each row
        sums to 1; kinds that the model does not have are absent
    alignment_layer: the layer of "cross" that aligns best (see Model)
    Raises ValueError for weights of an unknown kind, or with a shape that does not fit the tokens.
    """

    source: list[str]
    target: list[str]
    weights: Mapping[str, NDArray[np.float32]]
    alignment_layer: int = 0

    def __post_init__(self) -> None:
        if not self.weights.keys() & KINDS.keys() or self.weights.keys() - KINDS.keys():
            given = ", ".join(self.weights) or "none"
            raise ValueError(f"kinds of attention: {given}; must be among {', '.join(KINDS)}")
        for kind, weights in self.weights.items():
            sizes = tuple(map(len, self.labels(kind)))
            if weights.ndim != 4 or weights.shape[2:] != sizes or weights.size == 0:
                raise ValueError(f"{kind}: weights of shape {weights.shape}; must be (layers, heads, *{sizes})")

    def labels(self, kind: str) -> tuple[list[str], list[str]]:
        """The tokens of the queries and of the keys; the decoder's keys are its inputs, BOS and the previous tokens."""
        return {
            "encoder": (self.source, self.source),
            "decoder": (self.target, [SYMBOLS[BOS], *self.target[:-1]]),
            "cross": (self.target, self.source),
        }[kind]

    def first_shown(self, kind: str) -> int:
        """The layer to show first: for cross-attention, the layer that aligns best; for other kinds, the last layer."""
        return self.alignment_layer if kind == "cross" else len(self.weights[kind]) - 1

    def mean_map(self, kind: str) -> tuple[str, NDArray[np.float32]]:
        """The name and weights of the layer to show first, averaged over its heads; shape (queries, keys)."""
        num_layers, num_heads = self.weights[kind].shape[:2]
        layer, heads = self.first_shown(kind), f"mean of {num_heads} heads" if num_heads > 1 else "one head"
        weights: NDArray[np.float32] = self.weights[kind][layer].mean(0)
        return f"{KINDS[kind]}, layer {layer + 1} of {num_layers}, {heads}", weights


@torch.inference_mode()
def attention_maps(model: Model, pipeline: Pipeline, source: Sequence[int], target: Sequence[int]) -> AttentionMaps:
    """The attention of every layer and head for a source and its translation. An ensemble has one layer and one head.

    source, target: ids without EOS, in the model's order
    Raises UserError for a model without attention.
    """
    weights = model.attentions(make_batch(flatten([source]), flatten([target])).to(device_of(model)))
    if not weights:
        raise UserError("--attention: the model has no attention to draw (drop --attention)")
    return AttentionMaps(
        [pipeline.source.piece(token) for token in [*source, EOS]],
        [pipeline.target.piece(token) for token in [*target, EOS]],
        {kind: layers[:, 0].float().cpu().numpy() for kind, layers in weights.items()},
        model.alignment_layer,
    )


def visible_token(token: str, max_cells: int) -> str:
    """A token in readable and safe form: control characters are escaped, and it fills at most `max_cells` terminal cells."""
    characters = readable_token(token)
    text = "".join(c if c.isprintable() or c in JOINERS else c.encode("unicode_escape").decode() for c in characters)
    return text if cell_len(text) <= max_cells else set_cell_size(text, max_cells - 1) + "…"


def check_picture(path: Path) -> None:
    """Raise UserError unless attention can be drawn to a file with this name. Called before the work starts."""
    check_file_name(path, ATTENTION_ENDINGS, "attention is drawn")
    if path.suffix.lower() != ".html":
        check_matplotlib(quoted(path))


def write_attention(path: Path, sentences: Sequence[AttentionMaps]) -> None:
    """Draw all sentences as a page (.html), or the first one as a picture (.svg, .png), depending on the file's name.

    Raises UserError as check_picture does, InputError if there is no sentence, and ResourceError if the file cannot be written.
    """
    check_picture(path)
    if not sentences:
        raise InputError(f"{quoted(path)}: not written, because no line was translated")
    ending = path.suffix.lower()
    write_output(
        path, attention_page(sentences).encode() if ending == ".html" else render_attention(sentences[0], ending[1:])
    )


def attention_page(sentences: Sequence[AttentionMaps]) -> str:
    """A whole page. Whatever the tokens contain, its security policy allows only this script and forbids all requests."""
    # In JSON, "<" occurs only in strings. It is escaped, so that no token can end the script element with the data.
    data = json.dumps(list(map(_packed, sentences)), separators=(",", ":")).replace("<", r"\u003c")
    script = read_asset("attention.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    page = Template(read_asset("attention.html"))
    title = escape(readable_text(sentences[0].source))
    return page.substitute(policy=policy, style=read_asset("attention.css"), data=data, script=script, title=title)


def _packed(maps: AttentionMaps) -> dict[str, Any]:
    """A sentence as the script reads it.

    weights: one byte each, in units of 1/255, in the order of the array, compressed with zlib and encoded in base64
    query_words, key_words: the index of the word that each token belongs to
    """
    kinds = {}
    for kind, name in KINDS.items():
        if kind in maps.weights:
            weights = maps.weights[kind]
            queries, keys = maps.labels(kind)
            levels = np.rint(255 * weights.clip(0, 1)).astype(np.uint8)
            packed = base64.b64encode(zlib.compress(levels.tobytes())).decode()
            sizes = {"layers": weights.shape[0], "heads": weights.shape[1], "first": maps.first_shown(kind)}
            words = {"query_words": word_numbers(queries), "key_words": word_numbers(keys)}
            kinds[kind] = {"name": name, "queries": queries, "keys": keys, **words, **sizes, "weights": packed}
    return {"source": readable_text(maps.source), "target": readable_text(maps.target), "kinds": kinds}


def terminal_map(maps: AttentionMaps, width: int = 80) -> str:
    """Cross-attention as lines of characters, one row per query; keys that do not fit into `width` cells follow below."""
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
    """Labels side by side, each CELL_CHARACTERS wide and written downwards, to be placed above their columns."""
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


def render_attention(maps: AttentionMaps, file_format: str) -> bytes:
    """The picture as a file: the mean over heads of the layer to show first, then every head of each kind, one row per layer."""

    def draw(figure: "Figure") -> None:
        layout = _Layout(figure)
        _draw_large(layout, maps, "cross" if "cross" in maps.weights else next(iter(maps.weights)))
        for kind in KINDS:
            if kind in maps.weights:
                _draw_heads(layout, kind, maps.weights[kind])
        layout.fit()

    return render_figure(draw, file_format)


class _Layout:
    """A figure that grows with its content; positions are in points from its upper left corner."""

    def __init__(self, figure: "Figure") -> None:
        from matplotlib.colors import LinearSegmentedColormap

        self.figure, self.axes = figure, figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.colours = LinearSegmentedColormap.from_list("weights", ["white", COLOUR], N=1024)
        self.width, self.height = 0.0, 0.0

    def put_map(self, name: str, x: float, y: float, cell: float, weights: NDArray[np.float32]) -> None:
        """Draw a map with a frame. name: its id in SVG; cell: size of a weight in points; weights: shape (queries, keys)"""
        right, bottom = x + cell * weights.shape[1], y + cell * weights.shape[0]
        # with "none", the SVG stores one pixel per weight, and the viewer enlarges the image
        image = self.axes.imshow(
            weights, self.colours, interpolation="none", vmin=0, vmax=1, extent=(x, right, bottom, y)
        )
        image.set_gid(name)
        self.axes.plot([x, right, right, x, x], [y, y, bottom, bottom, y], color=COLOUR, linewidth=0.5)
        self.width, self.height = max(self.width, right + MARGIN_POINTS), max(self.height, bottom + MARGIN_POINTS)

    def put_text(
        self, text: str, x: float, y: float, side: str = "left", size: float = FONT_POINTS, upward: bool = False
    ) -> None:
        """Draw text with its left, center or right at x and its middle at y. upward: whether it is rotated to read upwards"""
        turn = 90 if upward else 0
        self.axes.text(x, y, text, fontsize=size, ha=side, va="center_baseline", rotation=turn, rotation_mode="anchor")

    def put_heading(self, text: str, y: float) -> None:
        self.put_text(text, MARGIN_POINTS, y, size=HEADING_POINTS)
        self.width = max(self.width, len(text) * CHARACTER_WIDTH * HEADING_POINTS + 2 * MARGIN_POINTS)

    def fit(self) -> None:
        """Set the size of the figure to that of its content."""
        self.figure.set_size_inches(self.width / POINTS_PER_INCH, self.height / POINTS_PER_INCH)
        self.axes.set(xlim=(0, self.width), ylim=(self.height, 0), aspect="auto")


def _draw_large(layout: _Layout, maps: AttentionMaps, kind: str) -> None:
    name, weights = maps.mean_map(kind)
    queries, keys = ([visible_token(token, MAX_LABEL_CELLS) for token in tokens] for tokens in maps.labels(kind))
    cell = min(CELL_POINTS, MAX_MAP_POINTS / max(weights.shape))
    size = min(FONT_POINTS, cell)

    lengths = (max(map(cell_len, tokens)) for tokens in (queries, keys))
    beside, above = (CHARACTER_WIDTH * size * length + GAP_POINTS for length in lengths)
    x, y = MARGIN_POINTS + beside, MARGIN_POINTS + LINE_POINTS + above
    layout.put_heading(
        f"{name} (row: predicted token; column: attended token; white 0, dark 1)", MARGIN_POINTS + LINE_POINTS / 2
    )
    layout.put_map(f"{kind}-layer-{maps.first_shown(kind) + 1}-mean", x, y, cell, weights)
    for i, token in enumerate(queries):
        layout.put_text(token, x - GAP_POINTS / 2, y + cell * (i + 0.5), "right", size)
    for i, token in enumerate(keys):
        layout.put_text(token, x + cell * (i + 0.5), y - GAP_POINTS / 2, "left", size, upward=True)


def _draw_heads(layout: _Layout, kind: str, weights: NDArray[np.float32]) -> None:
    """Draw a small map of each head. weights: (layers, heads, queries, keys)"""
    cell = SMALL_MAP_POINTS / max(weights.shape[2:])
    height, width = (cell * size for size in weights.shape[2:])
    top = layout.height + LINE_POINTS
    layout.put_heading(f"{KINDS[kind]}: one row per layer, one column per head", top)
    left, top = MARGIN_POINTS + LINE_POINTS, top + 2 * LINE_POINTS
    for head in range(weights.shape[1]):
        x = left + head * (width + GAP_POINTS)
        layout.put_text(f"{head + 1}", x + width / 2, top - LINE_POINTS / 2, "center")
    for layer, heads in enumerate(weights):
        y = top + layer * (height + GAP_POINTS)
        layout.put_text(f"{layer + 1}", left - GAP_POINTS, y + height / 2, "right")
        for head, head_weights in enumerate(heads):
            x = left + head * (width + GAP_POINTS)
            layout.put_map(f"{kind}-layer-{layer + 1}-head-{head + 1}", x, y, cell, head_weights)
