"""Pictures of attention: the weights and tokens that are read back out of them, at their places, are those put in."""

import base64
import hashlib
import io
import json
import re
import unicodedata
import zlib
from html.parser import HTMLParser
from importlib.util import find_spec
from itertools import groupby
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest
from extras import EXTRAS, named_packages

from nmt.errors import InputError, UserError
from nmt.extensions.watch.pictures import figures
from nmt.extensions.watch.pictures.attention import COLOUR, AttentionMaps, check_picture, terminal_map, write_attention
from nmt.extensions.watch.pictures.figures import PNG_PIXELS_PER_POINT
from nmt.extensions.watch.pictures.page import read_asset
from nmt.extensions.watch.pictures.tokens import readable_text, word_numbers

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
SCRIPT = read_asset("attention.js")
needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs matplotlib")
SOURCE = ["▁the", "</script><script>x()", "猫", "\x1b[2J", "a" * 60, "</s>"]
TARGET = ["e\u0301t\u0301", "<!--", "שלום", "$x$", "</s>"]
END = "⟨end⟩"
SIZES = {"encoder": (2, 3, 6, 6), "decoder": (3, 2, 5, 5), "cross": (3, 2, 5, 6)}


def rows(shape, seed=1):
    """Weights of that shape whose rows sum to 1; some are 0, none is like another."""
    weights = np.random.default_rng(seed).gamma(0.5, size=shape).astype(np.float32)
    weights[..., -1:0:-3] = 0  # never the first
    return weights / weights.sum(-1, keepdims=True)


@pytest.fixture
def attended() -> AttentionMaps:
    weights = {kind: rows(shape, seed) for seed, (kind, shape) in enumerate(SIZES.items())}
    return AttentionMaps(SOURCE, TARGET, weights, alignment_layer=1)


class Elements(HTMLParser):
    """What a browser would see: the tags with their attributes, and what is in the scripts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.scripts = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script" and data.strip():
            self.scripts.append(data)


@pytest.fixture
def page(attended, tmp_path) -> str:
    write_attention(tmp_path / "a.html", [attended, AttentionMaps(["x"], ["y"], {"cross": rows((1, 1, 1, 1))})])
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
    return (tmp_path / "a.html").read_text(encoding="utf-8")


def test_weights_and_tokens_read_back_from_the_page_are_unchanged(attended, page):
    first, second = json.loads(Elements(page).scripts[0])
    assert list(first["kinds"]) == list(SIZES) and list(second["kinds"]) == ["cross"]
    for kind, one in first["kinds"].items():
        layers, heads, queries, keys = SIZES[kind]
        assert (one["layers"], one["heads"], len(one["queries"]), len(one["keys"])) == (layers, heads, queries, keys)
        found = np.frombuffer(zlib.decompress(base64.b64decode(one["weights"])), np.uint8).reshape(SIZES[kind])
        assert np.abs(found / 255 - attended.weights[kind]).max() <= 0.5001 / 255
    assert {kind: one["first"] for kind, one in first["kinds"].items()} == {"encoder": 1, "decoder": 2, "cross": 1}
    labels = {kind: (one["queries"], one["keys"]) for kind, one in first["kinds"].items()}
    assert labels["encoder"] == (SOURCE, SOURCE) and labels["cross"] == (TARGET, SOURCE)
    assert labels["decoder"] == (TARGET, ["<s>", *TARGET[:-1]])


def test_no_token_escapes_the_data_block_and_only_the_pages_script_can_run(page):
    elements = Elements(page)
    assert [tag for tag, _ in elements.tags].count("script") == 2 and elements.scripts[1:] == [SCRIPT]
    assert "</" not in SCRIPT and "<!--" not in SCRIPT
    [policy] = [attributes["content"] for _, attributes in elements.tags if "http-equiv" in attributes]
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_the_page_references_nothing_to_fetch(page):
    assert not {"src", "href"} & {name for _, attributes in Elements(page).tags for name in attributes}
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttpRequest|import\(", page)


def test_every_element_that_the_script_asks_for_is_in_the_page(page):
    there = {attributes["id"] for _, attributes in Elements(page).tags if "id" in attributes}
    asked = set(re.findall(r'\bbyId\("(\w+)"\)', SCRIPT)) | set(re.findall(r'\["(\w+)", kind\.', SCRIPT))
    assert asked | {"data"} == there - {"map", "links"}


@pytest.mark.parametrize(
    ("tokens", "words", "text"),
    [
        (["▁Ta", "g", "▁", "x", "</s>"], [0, 0, 1, 1, 2], "Tag x"),
        (["Ta@@", "g", "x", "</s>"], [0, 0, 1, 2], "Tag x"),
        (["<s>", "Tag", "x"], [0, 1, 2], "⟨start⟩ Tag x"),
        ([], [], ""),
    ],
)
def test_tokens_are_joined_into_words_by_their_markers(tokens, words, text):
    assert word_numbers(tokens) == words and readable_text(tokens) == text


def test_the_page_says_what_it_shows_and_to_which_word_a_token_belongs(page):
    first, second = json.loads(Elements(page).scripts[0])
    assert "<title>Attention: the" in page and "layers" in page
    assert first["source"].startswith("the") and "▁" not in first["source"]
    assert first["kinds"]["encoder"]["query_words"] == word_numbers(SOURCE)
    assert first["kinds"]["decoder"]["key_words"] == word_numbers(["<s>", *TARGET[:-1]])
    assert second["kinds"]["cross"]["query_words"] == [0]
    for kind in SIZES:
        assert re.search(rf"^  {kind}: \"Each row is", SCRIPT, re.M)


def read_image(file):
    from matplotlib.image import imread

    return imread(file)


class Map(NamedTuple):
    """A map of a picture. x, y: its upper left corner, cell: the size of a weight, in points; pixels: its colours"""

    x: float
    y: float
    cell: float
    pixels: np.ndarray

    @property
    def weights(self):
        """The weights that the colours stand for, by their red: 0 is white, 1 is COLOUR."""
        return (1 - self.pixels[..., 0]) / (1 - int(COLOUR[1:3], 16) / 255)


def numbers(text):
    return [float(number) for number in re.findall(r"-?[\d.]+", text)]


def svg_maps(root):
    """The maps of a picture by their ids."""
    maps = {}
    for image in root.iter(f"{SVG}image"):
        width, skew, other_skew, height, x, y = numbers(image.get("transform"))
        assert width == pytest.approx(height) and (skew, other_skew) == (0, 0) and "pixelated" in image.get("style")
        kind, data = image.get(LINK).split(",")
        assert kind == "data:image/png;base64"
        pixels = read_image(io.BytesIO(base64.b64decode(data)))[..., :3]
        assert (float(image.get("height")), float(image.get("width"))) == pixels.shape[:2]
        maps[image.get("id")] = Map(x, y, width, pixels)
    return maps


def read_svg(path):
    root = ElementTree.parse(path).getroot()
    references = [value for element in root.iter() for name, value in element.attrib.items() if name == LINK]
    assert all(value.startswith(("#", "data:")) for value in references)
    return root


@pytest.fixture
def drawn(attended, tmp_path) -> ElementTree.Element:
    write_attention(tmp_path / "a.SVG", [attended])
    return read_svg(tmp_path / "a.SVG")


@needs_matplotlib
def test_the_svg_has_each_head_s_weights_with_one_row_per_layer_and_one_column_per_head(attended, drawn):
    maps = svg_maps(drawn)
    names = {f"{kind}-layer-{layer + 1}-head-{head + 1}": (kind, layer, head)
             for kind, (layers, heads, *_) in SIZES.items() for layer in range(layers) for head in range(heads)}  # fmt: skip
    assert maps.keys() == names.keys() | {"cross-layer-2-mean"}
    page_width, page_height = numbers(drawn.get("viewBox"))[2:]
    for name, (kind, layer, head) in names.items():
        drawn_map = maps[name]
        assert np.abs(drawn_map.weights - attended.weights[kind][layer, head]).max() <= 1.2 / 255
        first = maps[f"{kind}-layer-1-head-1"]
        assert (drawn_map.x > first.x) == (head > 0) and (drawn_map.y > first.y) == (layer > 0)
        height, width = drawn_map.weights.shape
        assert 0 < drawn_map.x < drawn_map.x + drawn_map.cell * width <= page_width
        assert 0 < drawn_map.y < drawn_map.y + drawn_map.cell * height <= page_height


@needs_matplotlib
def test_the_large_map_labels_its_cells_with_escaped_and_truncated_tokens(attended, drawn):
    large = svg_maps(drawn)["cross-layer-2-mean"]
    assert np.abs(large.weights - attended.weights["cross"][1].mean(0)).max() <= 1.2 / 255
    rows, columns = {}, {}
    for label in drawn.iter(f"{SVG}text"):
        at_x, at_y, angle, *_ = numbers(label.get("transform"))
        if "x" in label.attrib:
            angle, at_x, at_y = numbers(label.get("transform"))
        row, column = int((at_y - large.y) // large.cell), int((at_x - large.x) // large.cell)
        if angle == -90 and at_y < large.y:
            columns[column] = label.text
        elif angle == 0 and at_x < large.x and 0 <= row < len(TARGET):
            rows[row] = label.text
    assert columns == dict(enumerate([" the", "</script><script>x()", "猫", "\\x1b[2J", "a" * 23 + "…", END]))
    assert rows == dict(enumerate([*TARGET[:-1], END]))


@needs_matplotlib
def test_the_large_map_of_a_model_without_cross_attention_shows_another_kind(tmp_path):
    write_attention(tmp_path / "a.svg", [AttentionMaps(["x", "y"], ["z"], {"encoder": rows((1, 1, 2, 2))})])
    maps = svg_maps(read_svg(tmp_path / "a.svg"))
    assert maps.keys() == {"encoder-layer-1-mean", "encoder-layer-1-head-1"}


@needs_matplotlib
@pytest.mark.parametrize("name", ["a.svg", "a.png", "a.html"])
def test_the_same_attention_gives_the_same_bytes(name, attended, tmp_path):
    files = []
    for _ in range(2):
        write_attention(tmp_path / name, [attended])
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]


@needs_matplotlib
def test_the_png_has_the_same_maps_as_the_svg(attended, drawn, tmp_path):
    write_attention(tmp_path / "a.png", [attended])
    pixels = read_image(tmp_path / "a.png")[..., :3]
    width, height = numbers(drawn.get("viewBox"))[2:]
    assert pixels.shape[:2] == (int(PNG_PIXELS_PER_POINT * height), int(PNG_PIXELS_PER_POINT * width))
    for drawn_map in svg_maps(drawn).values():
        for (query, key), _ in np.ndenumerate(drawn_map.weights):
            x, y = drawn_map.x + (key + 0.5) * drawn_map.cell, drawn_map.y + (query + 0.5) * drawn_map.cell
            pixel = pixels[int(PNG_PIXELS_PER_POINT * y), int(PNG_PIXELS_PER_POINT * x)]
            np.testing.assert_allclose(pixel, drawn_map.pixels[query, key], atol=2 / 255)


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_without_matplotlib_a_picture_is_refused_up_front_with_what_to_install(name, monkeypatch, tmp_path):
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=re.escape(name)) as refused:
        check_picture(tmp_path / name)
    assert refused.value.code == 2 and named_packages(refused.value) == EXTRAS["plots"]
    check_picture(tmp_path / "a.html")


@pytest.mark.parametrize(
    ("name", "told"), [("a.pdf", "end with .html, .svg, .png"), ("html", "end with"), ("no/a.svg", "no not found")]
)
def test_an_unsupported_picture_file_name_is_refused(name, told, tmp_path):
    with pytest.raises(UserError, match=told):
        check_picture(tmp_path / name)


def test_without_a_sentence_nothing_is_written(tmp_path):
    with pytest.raises(InputError, match="no line was translated"):
        write_attention(tmp_path / "a.html", [])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "weights",
    [
        {},
        {"self": rows((1, 1, 2, 2))},
        {"cross": rows((1, 1, 2, 3))},  # keys and queries changed places
        {"cross": rows((1, 3, 2))},
        {"cross": np.zeros((0, 1, 3, 2), np.float32)},
    ],
)
def test_weights_that_do_not_fit_their_tokens_are_refused(weights):
    with pytest.raises(ValueError, match="must be"):
        AttentionMaps(["a", "</s>"], ["b", "c", "</s>"], weights)


def cells_of(line):
    """The cells of a terminal that a line takes, by Unicode's own tables: what stands in each."""
    cells = []
    for character in line:
        if unicodedata.combining(character):
            cells[-1] += character
        else:
            wide = unicodedata.east_asian_width(character) in "WF"
            cells += [character, ""] if wide else [character]
    return cells


def terminal_maps(text):
    """The panels of a terminal map, each as labels of its queries, labels of its keys, and a row of shades a query."""
    groups = [list(map(cells_of, lines)) for _, lines in groupby(text.splitlines()[1:], lambda line: "│" in line)]
    for above, rows in zip(groups[::2], groups[1::2], strict=True):
        [(left, right)] = {(row.index("│"), len(row) - 1) for row in rows}
        assert all(row[right] == "│" for row in rows)
        columns = range(left + 1, right, 2)
        assert all(row[column] == row[column + 1] for row in rows for column in columns)
        keys = ["".join("".join(line[column : column + 2]).strip() for line in above) for column in columns]
        yield ["".join(row[:left]).strip() for row in rows], keys, [[row[column] for column in columns] for row in rows]


def shade(weight):
    """The shade of a weight, as the heading of a terminal map says."""
    return next((shade for shade, least in (("█", 0.75), ("▓", 0.5), ("▒", 0.25), ("░", 0.1)) if weight >= least), " ")


def test_a_terminal_map_aligns_weights_with_tokens_of_any_width(attended):
    text = terminal_map(attended)
    assert text.startswith("cross-attention, layer 2 of 3, mean of 2 heads   ░ 0.1  ▒ 0.25  ▓ 0.5  █ 0.75\n")
    [(queries, keys, shades)] = terminal_maps(text)
    cut = {
        "▁the": "the",
        "</s>": END,
        "\x1b[2J": "\\x1b[2J",
        "a" * 60: "a" * 15 + "…",
        "</script><script>x()": "</script><scrip…",
    }
    of_queries, of_keys = ([cut.get(label, label) for label in labels] for labels in attended.labels("cross"))
    assert (queries, keys) == (of_queries, of_keys)
    assert shades == [[shade(weight) for weight in row] for row in attended.weights["cross"][1].mean(0)]


def test_a_terminal_map_wider_than_the_terminal_continues_below(attended):
    [(queries, keys, shades)] = terminal_maps(terminal_map(attended))
    narrow = terminal_map(attended, width=16)
    panels = list(terminal_maps(narrow))
    assert len(panels) > 1 and max(len(cells_of(line)) for line in narrow.splitlines()[1:]) <= 16
    assert all(panel[0] == queries for panel in panels)
    assert [key for panel in panels for key in panel[1]] == keys
    assert [[one for panel in panels for one in panel[2][i]] for i in range(len(queries))] == shades


def test_terminal_output_has_no_control_characters(attended):
    assert all(line.isprintable() for line in terminal_map(attended).split("\n"))
