"""Figures by matplotlib as SVG or PNG: the same bytes each time, and in SVG text stays text."""

import io
import re
import warnings
from collections.abc import Callable
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

from nmt.errors import missing_package
from nmt.log import log

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS_PER_INCH: Final = 72  # a pixel of our layouts is a point of matplotlib's
PNG_PIXELS_PER_POINT: Final = 2
MATPLOTLIB_SETTINGS: Final[dict[Any, object]] = {
    "svg.fonttype": "none",  # text as text
    "svg.hashsalt": "nmt",  # otherwise each run has ids of its own
    "image.composite_image": False,  # a map, an image
    "path.simplify": False,
    "text.parse_math": False,  # tokens and names may hold dollar signs
    "font.sans-serif": ["DejaVu Sans"],
}
NO_METADATA: Final = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def check_matplotlib(purpose: str) -> None:
    """Raise UserError unless matplotlib is installed. purpose: the flag or file that needs it, for the message"""
    if find_spec("matplotlib") is None:
        raise missing_package(purpose, "matplotlib", "plots")


def render_figure(draw: "Callable[[Figure], None]", file_format: Literal["svg", "png"]) -> bytes:
    """The file of a figure. draw: sets the size of a new figure and draws into it

    In a PNG, characters that matplotlib's fonts lack are boxes: a warning says so.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    file = io.BytesIO()
    with rc_context(MATPLOTLIB_SETTINGS), warnings.catch_warnings(record=True, action="always") as caught:
        figure = Figure(facecolor="white")
        draw(figure)
        metadata = NO_METADATA if file_format == "svg" else {"Software": None}
        figure.savefig(file, format=file_format, dpi=POINTS_PER_INCH * PNG_PIXELS_PER_POINT, metadata=metadata)
    if file_format == "png" and any("missing from" in str(warning.message) for warning in caught):
        log.warn("png: matplotlib's fonts lack characters of the tokens (svg and html use the reader's fonts)")
    return file.getvalue()


def inline_svg(title: str, draw: "Callable[[Figure], None]") -> str:
    """A figure as an <svg> element for a page. title: its accessible name"""
    drawing = render_figure(draw, "svg").decode()
    drawing = drawing[drawing.index("<svg") :]  # without XML declaration and document type
    drawing = re.sub(r'<g id="[\w.]+">', "<g>", drawing)  # several figures of a page would share these ids
    opening, rest = drawing.split(">", 1)
    opening = re.sub(r'="([\d.]+)pt"', r'="\1"', opening).replace("<svg", '<svg role="img"')
    return f"{opening}>\n <title>{escape(title)}</title>{rest}"
