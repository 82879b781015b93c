"""One picture of a sentence's attention, for a paper: a large map with its tokens, and below it every head, small."""

import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from nmt.log import log
from nmt.pictures.attention_maps import KINDS, AttentionMaps, quantised, shown

INK: Final = "#08519c"
LARGE, SMALL = 16.0, 84.0  # pixels: a cell of the large map, the longer side of a small one
MOST: Final = 2400.0  # pixels of the large map; where a sentence is too long for that its cells are smaller
SIDE, GAP, LINE = 16, 8, 20  # pixels: around the picture, between small maps, a line of text
LONGEST: Final = 24  # cells of a token
CHARACTER: Final = 0.6  # of the font's size: how wide a character is, on the safe side
TEXT, HEADING = 11.0, 13.0  # sizes of the font, in pixels
PIXELS_PER_POINT: Final = 2  # of a png: the picture at twice its size


@dataclass(frozen=True)
class Map:
    """A heat map at a place. x, y: its upper left corner; cell: pixels of a weight; weights: (queries, keys)."""

    name: str
    x: float
    y: float
    cell: float
    weights: NDArray[np.float32]

    @property
    def width(self) -> float:
        return self.cell * int(self.weights.shape[1])

    @property
    def height(self) -> float:
        return self.cell * int(self.weights.shape[0])


@dataclass(frozen=True)
class Label:
    """A text in the middle of a line. anchor: which part of it stands at x, y; upright: whether it is read upwards."""

    text: str
    x: float
    y: float
    anchor: str = "start"
    size: float = TEXT
    upright: bool = False


@dataclass
class Picture:
    """width, height: pixels, large enough for all that has been put into it."""

    width: float = 0.0
    height: float = 0.0
    maps: list[Map] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)

    def put_map(self, drawn: Map) -> None:
        self.maps.append(drawn)
        self.width = max(self.width, drawn.x + drawn.width + SIDE)
        self.height = max(self.height, drawn.y + drawn.height + SIDE)

    def put_heading(self, text: str, y: float) -> None:
        self.labels.append(Label(text, SIDE, y, size=HEADING))
        self.width = max(self.width, SIDE + len(text) * CHARACTER * HEADING + SIDE)


def picture(attended: AttentionMaps) -> Picture:
    """The mean of heads of the layer to show first, with its tokens, then all heads of each kind, a row a layer."""
    made = Picture()
    _large(made, attended, "cross" if "cross" in attended.weights else next(iter(attended.weights)))
    for kind in KINDS:
        if kind in attended.weights:
            _all_heads(made, kind, attended.weights[kind])
    return made


def _large(made: Picture, attended: AttentionMaps, kind: str) -> None:
    layer = attended.first_shown(kind)
    weights = attended.map_of(kind, layer, None)
    queries, keys = ([shown(label, LONGEST) for label in labels] for labels in attended.labels(kind))
    cell = min(LARGE, MOST / max(weights.shape))
    size = min(TEXT, cell)
    beside, above = (CHARACTER * size * max(map(cell_len, labels)) + GAP for labels in (queries, keys))
    name = attended.name_of(kind, layer, None)
    made.put_heading(f"{name} (white is 0, full colour 1)", SIDE + LINE / 2)
    drawn = Map(name, SIDE + beside, SIDE + LINE + above, cell, weights)
    made.put_map(drawn)
    for i, text in enumerate(queries):
        made.labels.append(Label(text, drawn.x - GAP / 2, drawn.y + cell * (i + 0.5), "end", size))
    for i, text in enumerate(keys):
        made.labels.append(Label(text, drawn.x + cell * (i + 0.5), drawn.y - GAP / 2, "start", size, upright=True))


def _all_heads(made: Picture, kind: str, weights: NDArray[np.float32]) -> None:
    """weights: (layers, heads, queries, keys)"""
    cell = SMALL / max(weights.shape[2:])
    height, width = (cell * size for size in weights.shape[2:])
    top = made.height + LINE
    made.put_heading(f"{KINDS[kind]}: a row a layer, a column a head", top)
    left, top = SIDE + LINE, top + 2 * LINE
    for head in range(weights.shape[1]):
        made.labels.append(Label(f"{head + 1}", left + head * (width + GAP) + width / 2, top - LINE / 2, "middle"))
    for layer, heads in enumerate(weights):
        y = top + layer * (height + GAP)
        made.labels.append(Label(f"{layer + 1}", left - GAP, y + height / 2, "end"))
        for head, one in enumerate(heads):
            name = f"{KINDS[kind]}, layer {layer + 1}, head {head + 1}"
            made.put_map(Map(name, left + head * (width + GAP), y, cell, one))


def as_svg(drawn: Picture) -> str:
    """A file of SVG: a weight is the opacity of its cell, to 1/255."""
    size = f"{drawn.width:.0f} {drawn.height:.0f}"
    width, height = size.split()
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{width}" height="{height}" '
        f'font-family="sans-serif" text-rendering="geometricPrecision">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for one in drawn.maps:
        parts += _svg_map(one)
    for label in drawn.labels:
        turn = " rotate(-90)" if label.upright else ""
        parts.append(
            f'<text transform="translate({label.x:.2f} {label.y:.2f}){turn}" dy=".35em" text-anchor="{label.anchor}" '
            f'font-size="{label.size:.4g}">{escape(label.text)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def _svg_map(drawn: Map) -> Iterator[str]:
    """The cells of one weight are one path, each a stroke as wide as it is long: thousands of cells stay small."""
    levels = quantised(drawn.weights)
    yield f'<g transform="translate({drawn.x:.2f} {drawn.y:.2f}) scale({drawn.cell:.6g})" stroke="{INK}">'
    yield f"<title>{escape(drawn.name)}</title>"
    yield '<g transform="translate(0 .5)" shape-rendering="crispEdges">'
    for level in np.unique(levels[levels > 0]):
        strokes = "".join(f"M{key} {query}h1" for query, key in np.argwhere(levels == level))
        yield f'<path stroke-opacity="{level / 255:.4f}" d="{strokes}"/>'
    yield "</g>"
    height, width = levels.shape
    yield f'<path fill="none" stroke-width="{0.5 / drawn.cell:.4g}" d="M0 0h{width}v{height}h-{width}z"/></g>'


def as_png(drawn: Picture) -> bytes:
    """The same picture by matplotlib, which must be installed. Characters that its fonts lack are warned of."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    figure = Figure(figsize=(drawn.width / 72, drawn.height / 72), facecolor="white")  # inches: a pixel is a point
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, drawn.width), ylim=(drawn.height, 0))
    axes.set_axis_off()
    colours = LinearSegmentedColormap.from_list("weights", ["white", INK])
    for one in drawn.maps:
        right, bottom = one.x + one.width, one.y + one.height
        place = (one.x, right, bottom, one.y)
        axes.imshow(one.weights, colours, aspect="auto", interpolation="nearest", vmin=0, vmax=1, extent=place)
        frame = [one.x, right, right, one.x, one.x], [one.y, one.y, bottom, bottom, one.y]
        axes.plot(*frame, color=INK, linewidth=0.5)
    axes.set(xlim=(0, drawn.width), ylim=(drawn.height, 0))  # each map has moved them
    for label in drawn.labels:
        axes.text(
            label.x,
            label.y,
            label.text,
            fontsize=label.size,
            ha={"start": "left", "middle": "center", "end": "right"}[label.anchor],
            va="center_baseline",
            rotation=90 if label.upright else 0,
            rotation_mode="anchor",
            parse_math=False,  # a token may hold dollar signs
        )
    file = io.BytesIO()
    with warnings.catch_warnings(record=True, action="always") as told:
        figure.savefig(file, format="png", dpi=72 * PIXELS_PER_POINT)
    if any("missing from" in str(one.message) for one in told):
        log.warn(
            "png: the fonts of matplotlib lack some characters of the tokens (svg and html take the reader's fonts)"
        )
    return file.getvalue()
