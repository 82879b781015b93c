"""Attention of a sentence pair, and its pictures: a page to click through, a picture for a paper, characters for a terminal."""

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from nmt.files import write_output
from nmt.models.base import Model
from nmt.symbols import BOS, EOS, SYMBOLS
from nmt.text.pipeline import Pipeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS: Final = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}
JOINERS: Final = "\u200c\u200d"  # not printable, but they shape the letters beside them (Persian, Indic scripts, emoji)
ATTENTION_ENDINGS: Final = (".html", ".svg", ".png")
SHADES: Final = " ░▒▓█"
THRESHOLDS: Final = (0.1, 0.25, 0.5, 0.75)  # the least weight of each shade after the first
CELL_CHARACTERS: Final = 2  # of a weight: about a square, and a wide character fits above it
MAX_TOKEN_CELLS: Final = 16  # of a terminal

# Of a picture for a paper: a large map with its tokens, and below it every head, small.
COLOUR: Final = "#08519c"  # of weight 1; 0 is white
CELL_POINTS: Final = 16.0  # a cell of the large map
MAX_MAP_POINTS: Final = 2400.0  # the large map; the cells of a longer sentence are smaller
SMALL_MAP_POINTS: Final = 84.0  # the longer side of a small map
MARGIN_POINTS, GAP_POINTS, LINE_POINTS = 16, 8, 20  # around the picture, between small maps, a line of text
FONT_POINTS, HEADING_POINTS = 11.0, 13.0
CHARACTER_WIDTH: Final = 0.6  # by the size of the font, an upper estimate
MAX_LABEL_CELLS: Final = 24  # characters of a terminal's width


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of a model for a sentence pair.

    source: tokens, EOS included
    target: tokens, EOS included; the query of a token is the decoder's state that predicts it
    weights: by kind ("encoder", "decoder", "cross"), an array (layers, heads, queries, keys) whose rows sum to 1;
        a kind that the model lacks is absent
    alignment_layer: the layer of "cross" that aligns best, see Model
    Raises ValueError for weights of an unknown kind, or of another shape than the tokens have.
    """

    source: list[str]
    target: list[str]
    weights: Mapping[str, NDArray[np.float32]]
    alignment_layer: int = 0

    def __post_init__(self) -> None:
        if not self.weights.keys() & KINDS.keys() or self.weights.keys() - KINDS.keys():
            raise ValueError(
                f"weights of {', '.join(self.weights) or 'no kind'}; must be of some of {', '.join(KINDS)}"
            )
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
        """The layer to show first: of cross-attention the one that aligns best, else the last."""
        return self.alignment_layer if kind == "cross" else len(self.weights[kind]) - 1

    def mean_map(self, kind: str) -> tuple[str, NDArray[np.float32]]:
        """The name and weights (queries, keys) of the layer to show first, the mean of its heads."""
        num_layers, num_heads = self.weights[kind].shape[:2]
        layer, heads = self.first_shown(kind), f"mean of {num_heads} heads" if num_heads > 1 else "one head"
        weights: NDArray[np.float32] = self.weights[kind][layer].mean(0)
        return f"{KINDS[kind]}, layer {layer + 1} of {num_layers}, {heads}", weights


@torch.inference_mode()
def attention_maps(model: Model, pipeline: Pipeline, source: Sequence[int], target: Sequence[int]) -> AttentionMaps:
    """The attention of every layer and head over a source and its translation; an ensemble has one layer and head.

    source, target: ids without EOS, in the model's order
    Raises UserError for a model without attention.
    """
    weights = model.attentions(make_batch(flatten([source]), flatten([target])).to(device_of(model)))
    if not weights:
        raise UserError("--attention: the model has no attention to draw (leave it out)")
    return AttentionMaps(
        [pipeline.source.piece(token) for token in [*source, EOS]],
        [pipeline.target.piece(token) for token in [*target, EOS]],
        {kind: layers[:, 0].float().cpu().numpy() for kind, layers in weights.items()},
        model.alignment_layer,
    )


def visible_token(token: str, max_cells: int) -> str:
    """A token as a person may safely see it: control characters escaped, cut at `max_cells` cells of a terminal."""
    text = "".join(c if c.isprintable() or c in JOINERS else c.encode("unicode_escape").decode() for c in token)
    return text if cell_len(text) <= max_cells else set_cell_size(text, max_cells - 1) + "…"


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
    write_output(
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


def render_attention(maps: AttentionMaps, file_format: str) -> bytes:
    """The picture as a file: mean of the heads of the layer to show first, then all heads of each kind, a row a layer."""

    def draw(figure: "Figure") -> None:
        layout = _Layout(figure)
        _draw_large(layout, maps, "cross" if "cross" in maps.weights else next(iter(maps.weights)))
        for kind in KINDS:
            if kind in maps.weights:
                _draw_heads(layout, kind, maps.weights[kind])
        layout.fit()

    return render_figure(draw, file_format)


class _Layout:
    """A figure that grows with what is put into it; places are points from its upper left corner."""

    def __init__(self, figure: "Figure") -> None:
        from matplotlib.colors import LinearSegmentedColormap

        self.figure, self.axes = figure, figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.colours = LinearSegmentedColormap.from_list("weights", ["white", COLOUR], N=1024)
        self.width, self.height = 0.0, 0.0

    def put_map(self, name: str, x: float, y: float, cell: float, weights: NDArray[np.float32]) -> None:
        """A map with its frame. name: its id in SVG; cell: points of a weight; weights: (queries, keys)"""
        right, bottom = x + cell * weights.shape[1], y + cell * weights.shape[0]
        # "none": in SVG one pixel a weight, which the viewer enlarges
        image = self.axes.imshow(
            weights, self.colours, interpolation="none", vmin=0, vmax=1, extent=(x, right, bottom, y)
        )
        image.set_gid(name)
        self.axes.plot([x, right, right, x, x], [y, y, bottom, bottom, y], color=COLOUR, linewidth=0.5)
        self.width, self.height = max(self.width, right + MARGIN_POINTS), max(self.height, bottom + MARGIN_POINTS)

    def put_text(
        self, text: str, x: float, y: float, side: str = "left", size: float = FONT_POINTS, upward: bool = False
    ) -> None:
        """A text whose left, center or right is at x, its middle at y; upward: turned to be read upwards"""
        turn = 90 if upward else 0
        self.axes.text(x, y, text, fontsize=size, ha=side, va="center_baseline", rotation=turn, rotation_mode="anchor")

    def put_heading(self, text: str, y: float) -> None:
        self.put_text(text, MARGIN_POINTS, y, size=HEADING_POINTS)
        self.width = max(self.width, len(text) * CHARACTER_WIDTH * HEADING_POINTS + 2 * MARGIN_POINTS)

    def fit(self) -> None:
        """Give the figure the size of what it holds."""
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
    layout.put_heading(f"{name} (white is 0, full colour 1)", MARGIN_POINTS + LINE_POINTS / 2)
    layout.put_map(f"{kind}-layer-{maps.first_shown(kind) + 1}-mean", x, y, cell, weights)
    for i, token in enumerate(queries):
        layout.put_text(token, x - GAP_POINTS / 2, y + cell * (i + 0.5), "right", size)
    for i, token in enumerate(keys):
        layout.put_text(token, x + cell * (i + 0.5), y - GAP_POINTS / 2, "left", size, upward=True)


def _draw_heads(layout: _Layout, kind: str, weights: NDArray[np.float32]) -> None:
    """weights: (layers, heads, queries, keys)"""
    cell = SMALL_MAP_POINTS / max(weights.shape[2:])
    height, width = (cell * size for size in weights.shape[2:])
    top = layout.height + LINE_POINTS
    layout.put_heading(f"{KINDS[kind]}: a row a layer, a column a head", top)
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
