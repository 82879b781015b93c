"""Charts: what a reader sees in them - curves, bars, numbers, names - stands at its place, and nothing is fetched."""

import re
from importlib.util import find_spec
from xml.etree import ElementTree

import pytest
from extras import EXTRAS, named_packages

from nmt.errors import UserError
from nmt.extensions.watch.pictures import figures
from nmt.extensions.watch.pictures.figures import HEIGHT_PIXELS, WIDTH_PIXELS, Curve, LineChart, bar_chart
from nmt.extensions.watch.pictures.page import html_page

pytestmark = pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs matplotlib")
HREF = "{http://www.w3.org/1999/xlink}href"
NAMES = "_a <b> & 'c' $x$"


def texts(root):
    return [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]


def paths(root):
    """The points, the style and whether it is filled, of each path that is drawn."""
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", path.get("d"))]
        yield list(zip(numbers[::2], numbers[1::2], strict=True)), path.get("style", "")


def coloured(root, colour):
    return [points for points, style in paths(root) if colour in style]


def test_a_curve_passes_through_its_points_and_skips_non_finite_ones():
    curves = [Curve("a", [(0, 0), (5, 50), (10, 100), (7, float("nan"))]), Curve("b", [(2, 30)])]
    root = ElementTree.fromstring(LineChart("t", "x", "y", curves).as_svg())
    (left, bottom), middle, (right, top) = coloured(root, "#0072b2")[0]
    assert middle == (pytest.approx((left + right) / 2), pytest.approx((bottom + top) / 2))
    assert 0 < left < right < WIDTH_PIXELS and 0 < top < bottom < HEIGHT_PIXELS
    numbers = {"0", "2", "4", "6", "8", "10", "20", "40", "60", "80", "100"}
    assert numbers <= set(texts(root))
    [dot, *_] = [use for use in root.iter("{http://www.w3.org/2000/svg}use") if "#d55e00" in use.get("style")]
    assert float(dot.get("x")) == pytest.approx(left + 0.2 * (right - left))
    assert float(dot.get("y")) == pytest.approx(bottom + 0.3 * (top - bottom))


def test_a_chart_contains_its_names_as_escaped_text():
    root = ElementTree.fromstring(LineChart(NAMES, f"x {NAMES}", f"y {NAMES}", [Curve(NAMES, [(1, 1)])]).as_svg())
    assert root.find("{http://www.w3.org/2000/svg}title").text == NAMES
    found = [text.strip() for text in texts(root)]
    assert found.count(NAMES) == 2 and {f"x {NAMES}", f"y {NAMES}"} <= set(found)


@pytest.mark.parametrize("values", [[], [3.0], [-1e-9, -1e-9], [1e-7, 3e-7], [-5.0, 1e6], [1e18, 1.0000001e18]])
def test_any_numbers_can_be_charted(values):
    chart = LineChart("t", "x", "y", [Curve("a", [(v, v) for v in values])]).as_svg()
    marks = [text for text in texts(ElementTree.fromstring(chart)) if re.search(r"\d", text)]
    assert 4 <= len(marks) <= 30
    assert chart == LineChart("t", "x", "y", [Curve("a", [(v, v) for v in values])]).as_svg()


def test_bars_are_as_long_as_their_counts_and_labelled_with_them():
    root = ElementTree.fromstring(bar_chart("a < b & c", [("0", 0), ("1-5", 10), ("<&> $x$", 30)]))
    widths = [max(x for x, _ in points) - min(x for x, _ in points) for points in coloured(root, "#0072b2")]
    assert widths == pytest.approx([0, widths[2] / 3, widths[2]], abs=0.1) and widths[2] > 100
    assert {"a < b & c", "0", "1-5", "<&> $x$", "0 (0.0 %)", "10 (25.0 %)", "30 (75.0 %)"} <= set(texts(root))
    ElementTree.fromstring(bar_chart("nothing", []))


def test_a_page_of_charts_fetches_nothing_and_runs_no_script():
    charts = [bar_chart("a", [("x", 1)]), LineChart("b", "x", "y", [Curve("c", [(1, 2), (2, 3)])]).as_svg()]
    page = html_page("a < b", charts)
    assert not re.search(r"<script|src=|@import|<image|<link|url\((?!#)", page)
    for chart in charts:
        root = ElementTree.fromstring(chart)
        assert all(element.get(HREF, "#").startswith("#") for element in root.iter())
    assert set(re.findall(r"https?:[^\"]*", page)) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_a_chart_that_needs_matplotlib_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^--html") as error:
        figures.check_matplotlib("--html")
    assert error.value.code == 2 and named_packages(error.value) == EXTRAS["plots"]
