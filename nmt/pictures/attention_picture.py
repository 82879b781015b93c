"""A picture of a sentence's attention for a paper: a large map with its tokens, and below it every head, small."""

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from nmt.pictures.attention_maps import KINDS, AttentionMaps, visible_token
from nmt.pictures.figures import POINTS_PER_INCH, render_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOUR: Final = "#08519c"  # of weight 1; 0 is white
CELL_POINTS: Final = 16.0  # a cell of the large map
MAX_MAP_POINTS: Final = 2400.0  # the large map; the cells of a longer sentence are smaller
SMALL_MAP_POINTS: Final = 84.0  # the longer side of a small map
MARGIN_POINTS, GAP_POINTS, LINE_POINTS = 16, 8, 20  # around the picture, between small maps, a line of text
FONT_POINTS, HEADING_POINTS = 11.0, 13.0
CHARACTER_WIDTH: Final = 0.6  # by the size of the font, an upper estimate
MAX_LABEL_CELLS: Final = 24  # characters of a terminal's width


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
        turn = {"rotation": 90, "rotation_mode": "anchor"} if upward else {"rotation_mode": "anchor"}
        self.axes.text(x, y, text, fontsize=size, ha=side, va="center_baseline", **turn)

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
