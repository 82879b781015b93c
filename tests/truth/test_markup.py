"""Text with tags: what is translated, what is kept, and that all of it comes back."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.extensions.texts.markup import parse
from nmt.extensions.texts.passages import Marker, Passage, escaped, joined_markers
from nmt.extensions.texts.placeholders import placeholders
from nmt.extensions.texts.projection import _shares, projected, source_units, unit_weights, units
from nmt.extensions.texts.tags import MAX_NESTED_ELEMENTS


def texts(text: str, markup: str) -> list[str]:
    """The plain text of each passage."""
    return [part.text for part in parse(text, markup) if isinstance(part, Passage)]


def copied(part) -> str:
    """A part as it is written when its translation is its own text."""
    if isinstance(part, str):
        return part
    text = " ".join(part.text.split())
    return projected(part, text, np.eye(len(units(text))))


@pytest.mark.parametrize(
    ("markup", "text", "wanted"),
    [
        ("xml", "a <b>big</b> dog &amp; a &#99;at &nbsp;", ["a big dog & a cat "]),
        ("html", "a <B class='x>y'>big</b> dog &eacute;", ["a big dog é"]),
        ("html", "<p>One <i>two</i>.</p><ul><li>Three<li>Four<br>Five</ul>", ["One two.", "Three", "Four", "Five"]),
        ("html", "<style>p {x: y}</style>Text <!-- not <b> this --> <code>x = 1</code> end", ["Text   end"]),
        ("html", '<p>Buy <span translate="no">My <b>Name</b></span> now <i class="a notranslate">x</i>!</p>', ["Buy  now !"]),
        ("xml", "a < b and <c/> x<y <![CDATA[<no>]]> <?pi?>", ["a < b and  x<y  "]),
        ("xml", "<p>One</p><p>Two</p>", ["One", "Two"]),
        ("xml", "One.<lb/>Two\tThree\\nFour<x/>\n\nFive", ["One.", "Two", "Three", "Four", "Five"]),
        ("xml", "<w:p><w:r>One</w:r></w:p><w:p><w:r>Two</w:r></w:p>", ["One", "Two"]),
        ("xml", "<doc>\n <name>One</name>\n <text>Two</text>\n</doc>", ["One", "Two"]),
        ("xml", "<k>One</k><k>Two</k>", ["One", "Two"]),
        ("html", "<b>One two.</b><b>Three</b> x.<i>y</i>", ["One two.", "Three x.y"]),
        ("html", "a <?php if ($x > 1) ?> b<!DOCTYPE a [<!ENTITY b 'c>'>]> <% x > 3 %>", ["a  b "]),
        ("html", "so&shy;ft and\u00ad", ["soft and"]),
        ("none", "a <b>c</b> &amp;", ["a <b>c</b> &amp;"]),
        ("html", "<br><hr> <img src=x> <!-- y -->", []),
        ("html", "", []),
    ],
)  # fmt: skip
def test_the_text_of_passages_is_the_visible_text(markup, text, wanted):
    assert texts(text, markup) == wanted


@pytest.mark.parametrize("text", ["&copy; The woman &mdash; thinks &amp; <b>sees &foo.bar;</b>", "&nbsp; a", "&copy;"])
def test_references_of_xml_are_not_text(text):
    assert "".join(map(copied, parse(text, "xml"))) == text
    assert not any("&" in part for part in texts(text, "xml") if "&amp;" not in text)


@pytest.mark.parametrize("markup", ["html", "xml"])
@pytest.mark.parametrize(
    "text",
    [
        "a <b>big <i>red</i></b> dog<x/> ran <y/>off.",
        "<w/>One <a href=\"x\">two, <b>three</b></a>; <c>four</c> <d>five</d>",
        "<p>not closed <b>here</p> or <i>there",
        "closed </b> only <i>a </b>c</i>",
        "an <b></b> empty <i> </i> one &amp; <c><d/></c> end",
        "nothing",
        "{name} has %d &lt;tags&gt;",
    ],
)  # fmt: skip
def test_a_text_that_is_its_own_translation_comes_back_as_it_was(text, markup):
    assert "".join(map(copied, parse(text, markup))) == text


def test_an_element_can_span_two_sentences():
    [passage] = parse("<i>One <b>two.</b> Three</i> four. <x/>Five<y/>", "xml")
    parts = passage.parts([(0, 8), (9, 20), (21, 25)])
    assert [part.text for part in parts] == ["One two.", "Three four.", "Five"]
    assert list(map(copied, parts)) == ["<i>One <b>two.</b>", "Three</i> four.", "<x/>Five<y/>"]


def test_placeholders_can_be_hidden_from_the_model():
    text = "Hi {name}, see <b>%d</b> of %(all)s at https://x.org/a?b=1 or 100% of ${y} {{z}}, %1$s and me@x.org"
    [passage] = parse(text, "xml")
    found = ["${y}", "%(all)s", "%1$s", "%d", "https://x.org/a?b=1", "me@x.org", "{name}", "{{z}}"]
    assert placeholders(passage.text) == found
    hidden = passage.without_placeholders()
    assert placeholders(hidden.text) == [] and " ".join(hidden.text.split()) == "Hi , see of at or 100% of , and"
    written = copied(hidden)
    assert sorted(re.findall(r"<b>%d</b>|" + "|".join(map(re.escape, found)), written)) == sorted(
        {*found, "<b>%d</b>"} - {"%d"}
    )


def test_a_hidden_placeholder_is_escaped_like_text_between_tags():
    [passage] = parse("see https://x.org/?a=1&amp;b=2 or &amp;lt; now", "xml")
    assert copied(passage.without_placeholders()) == "see https://x.org/?a=1&amp;b=2 or &amp;lt; now"


def test_hostile_tags_are_read_in_bounded_time_and_depth():
    for text in ("<a " * 20000, "<a b='" * 20000, "<!--" * 20000, "<code>" * 20000, "{" * 50000, "%(" * 50000):
        for markup in ("html", "xml"):
            assert "".join(part if isinstance(part, str) else part.text for part in parse(text, markup)).startswith(
                text[:2]
            )
        assert set(placeholders(text)) <= {"<code>"}
    for text in (
        "<" + "a" * 50000,
        "%" + "0" * 50000,
        "a" * 50000 + "@",
        "&" * 50000,
        "<a/>" * 20000 + "x",
        "{a,plural,b{" * 9000,
    ):
        assert parse(text, "html") and len(set(placeholders(text))) < 2
    assert texts("Hi &#" + "9" * 5000 + "; &#65; &eacute", "html") == ["Hi &#" + "9" * 5000 + "; A é"]
    deep = "<a>" * 3000 + "x" + "</b>" * 3000 + "</a>" * 3000
    [passage] = parse(deep, "xml")
    assert passage.text == "x" and len(passage.elements) == MAX_NESTED_ELEMENTS and copied(passage).count("<") == 9000
    hidden = "<code>" * (MAX_NESTED_ELEMENTS + 50) + "<a>" * 3000 + "</b>" * 3000 + "</code>" * MAX_NESTED_ELEMENTS
    [passage] = parse(f"x {hidden}</code> y", "html")  # the last tag is no longer in what is hidden
    assert passage.text == "x  y" and [marker.raw for marker in passage.markers] == [f"{hidden}</code>"]


def weights(pairs: dict[int, list[int]], shape: tuple[int, int]) -> np.ndarray:
    """(U, V) attention: each target unit to some source units."""
    table = np.full(shape, 0.02)
    for target, sources in pairs.items():
        table[target, sources] = 1
    return table / table.sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("source", "target", "pairs", "wanted"),
    [
        ("the <a>white</a> <b>house</b> <x/>", "la casa blanca", {0: [0], 1: [2], 2: [1]}, "la <b>casa</b> <a>blanca</a> <x/>"),
        ("they <b>run</b> fast", "schnell laufen sie", {0: [2], 1: [1], 2: [0]}, "schnell <b>laufen</b> sie"),
        ("press <b>OK</b>.", "OK drücken.", {0: [1], 1: [0], 2: [2]}, "<b>OK</b> drücken."),
        ("<i>a b</i> c", "z", {0: [2]}, "<i>z</i>"),
        ("a<x/> b", "B A", {0: [1], 1: [0]}, "B A<x/>"),
        ("a<x/><y/> b", "A B", {0: [0], 1: [1]}, "A<x/><y/> B"),
        ("a <x/><y/> b", "A B", {0: [0], 1: [1]}, "A <x/><y/> B"),
        ("a dog<sup><a>1</a></sup> b", "B A DOG", {0: [2], 1: [0], 2: [1]}, "B A DOG<sup><a>1</a></sup>"),
        ("a <bx id='1'/>b c<ex id='1'/> d", "d c b a", {0: [3], 1: [2], 2: [1], 3: [0]}, "d <bx id='1'/>c b<ex id='1'/> a"),
        ("<bpt i='1'>x</bpt>b<ept i='1'>y</ept> a", "A B", {0: [1], 1: [0]}, "A <bpt i='1'>x</bpt>B<ept i='1'>y</ept>"),
        ("a [b](c) {\\i1}d{\\i0}", "d b a", {0: [2], 1: [1], 2: [0]}, "{\\i1}d{\\i0} [b](c) a"),
        ("a [u]e[/u] **f**", "f e a", {0: [2], 1: [1], 2: [0]}, "**f** [u]e[/u] a"),
        ("<b>a <i>b</i></b> c", "c < b a", {0: [2], 1: [2], 2: [1], 3: [0]}, "c &lt; <b><i>b</i> a</b>"),
    ],
)  # fmt: skip
def test_tags_stay_around_their_words(source, target, pairs, wanted):
    [passage] = parse(source, "xml")
    shape = len(units(target)), len(source_units(passage))
    assert projected(passage, target, weights(pairs, shape)) == wanted


@st.composite
def marked_texts(draw, depth=3):
    """Well-formed text with tags of unique names."""
    count = 0

    def inside(level: int) -> str:
        nonlocal count
        parts = []
        for _ in range(draw(st.integers(1, 3))):
            count += 1
            name = f"t{count}"
            kind = draw(st.sampled_from(["words", "element", "single"] if level else ["words"]))
            if kind == "words":
                parts.append(draw(st.sampled_from(["red dog", "a", " ", "x, y.", "&lt;3", ""])))
            elif kind == "single":
                parts.append(f"<{name}/>")
            else:
                parts.append(f"<{name}>{inside(level - 1)}</{name}>")
        return draw(st.sampled_from(["", " "])).join(parts)

    return inside(depth)


@given(
    marked_texts(),
    st.lists(st.sampled_from(["hund", "rot", ".", ",", "ein", "<"]), max_size=8),
    st.integers(0, 2**32 - 1),
)
def test_all_tags_are_kept_once_and_well_formed_whatever_the_attention(source, words, seed):
    translation, written = " ".join(words), []
    for part in parse(source, "xml"):
        if isinstance(part, str):
            written.append(part)
            continue
        shape = len(units(translation)), len(source_units(part))
        written.append(
            projected(
                part,
                translation,
                np.random.default_rng(seed).dirichlet(np.full(shape[1], 0.1), shape[0])
                if shape[1]
                else np.zeros(shape),
            )
        )
    result = "".join(written)
    tree = ElementTree.fromstring(f"<root>{result}</root>")
    before = ElementTree.fromstring(f"<root>{source}</root>")

    def parents(node):
        return {child.tag: node.tag for node in node.iter() for child in node}

    assert parents(tree) == parents(before)
    if len(written) == 1 and "<" not in words and any(isinstance(part, Passage) for part in parse(source, "xml")):
        assert "".join("".join(tree.itertext()).split()) == "".join(words)


def test_token_attention_is_summed_to_word_attention_and_equal_units_are_matched():
    source, target = "Das Haus, 42", "the house , 42"
    attention = np.array([[1, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0], [0.2] * 5, [0.2] * 5])
    found = unit_weights(
        Passage(source), target, ["Das", " Ha", "us", ",", " 42"], ["the", " house", " ,", " 42"], attention
    )
    assert found.shape == (4, 4) and np.allclose(found.sum(1), 1)
    assert found.argmax(1).tolist() == [0, 1, 2, 3] and found[1, 1] == 1
    lower = unit_weights(Passage("ÄB c, d"), "x y z", ["äb", " ?", ",", " d"], ["x", " y", " z"], np.eye(4)[[0, 1, 3]])
    assert lower.argmax(1).tolist() == [0, 1, 3]


def test_a_letter_keeps_its_marks_and_characters_of_scripts_without_spaces_are_units():
    def parts(text):
        return [text[start:end] for start, end in units(text)]

    assert parts("किताब की") == ["किताब", "की"] and parts("cafe\u0301 don't") == ["cafe\u0301", "don't"]
    assert parts("私は東京、Tokyo") == ["私", "は", "東", "京", "、", "Tokyo"] and parts("ที่นี่") == ["ที่", "นี่"]
    [passage] = parse("I bought a <b>red</b> car in <i>Tokyo</i>", "xml")
    target = "東京で赤い車を買った"
    weights = np.full((len(units(target)), 7), 0.01)
    for place, word in {0: 6, 1: 6, 2: 5, 3: 3, 4: 3, 5: 4, 6: 4, 7: 1, 8: 1, 9: 1}.items():
        weights[place, word] = 1.0
    assert projected(passage, target, weights) == "<i>東京</i>で<b>赤い</b>車を買った"


def test_text_is_escaped():
    assert escaped("a < b & c > d") == "a &lt; b &amp; c &gt; d"


def test_pieces_next_to_a_whitespace_only_text_belong_to_no_unit():
    """Byte pieces have a surface where the text that they make has none."""
    assert _shares(" ", [], ["\ufffd"]).shape == (1, 0)
    assert _shares("", [(0, 0)], ["\ufffd"]).tolist() == [[0.0]]


def removed_one_by_one(passage):
    """The definition of `without_placeholders`: each item, from the last one, becomes a marker with the elements it empties."""
    for item in reversed(passage.kept):
        size = item.end - item.start
        text = passage.text[: item.start] + passage.text[item.end :]

        def moved(place, item=item, size=size):
            return place if place <= item.start else max(item.start, place - size)

        elements, raw, inside, numbers = [], item.raw, -1, {-1: -1}
        for i, element in enumerate(passage.elements):
            new = element._replace(start=moved(element.start), end=moved(element.end))
            if text[new.start : new.end].strip():
                numbers[i] = len(elements)
                elements.append(new)
                inside = numbers[i] if element.start <= item.start and item.end <= element.end else inside
        for i in reversed([i for i in range(len(passage.elements)) if i not in numbers]):
            raw = passage.elements[i].open + raw + passage.elements[i].close
        own = Marker(item.start, raw, inside, item.before, item.after, item.kind != "mark")
        place = sum(marker.position <= item.start for marker in passage.markers)
        others = [m._replace(position=moved(m.position), inside=numbers.get(m.inside, inside)) for m in passage.markers]
        kept = tuple(k._replace(start=moved(k.start), end=moved(k.end)) for k in passage.kept if k != item)
        passage = Passage(text, tuple(elements), (*others[:place], own, *others[place:]), kept)
    return replace(passage, markers=joined_markers(passage.markers))


@given(
    st.lists(st.sampled_from(["<b>", "</b>", "<i>", "</i>", "<x/>", "{x}", "%s", "m² ", "dog", " ", ". "]), max_size=14)
)
def test_placeholders_removed_at_once_equal_those_removed_one_by_one(parts):
    for passage in parse("".join(parts), "xml"):
        if isinstance(passage, Passage):
            assert passage.without_placeholders() == removed_one_by_one(passage)


@given(st.lists(st.sampled_from(["<b>", "</b>", "<i>", "</i>", "<x/>", "{x}", "dog", " ", "&lt;"]), max_size=14))
def test_a_passage_is_written_as_it_was_read(parts):
    text = "".join(parts)
    assert "".join(p if isinstance(p, str) else p.written(escaped) for p in parse(text, "xml")) == text


def test_an_element_without_tags_in_a_sentence_costs_nothing_there():
    [passage] = parse(90 * "<i>" + " ".join(1000 * ["The dog runs."]) + 90 * "</i>", "xml")
    spans = [(14 * i, 14 * i + 13) for i in range(1000)]
    assert [len(part.elements) for part in passage.parts(spans)] == [90, *(998 * [0]), 90]


def test_a_long_address_is_never_divided():
    [passage] = parse(f"see https://a.org/{1500 * 'b'} now", "xml")
    assert passage.whole([(0, 900), (900, 1500), (1500, len(passage.text))]) == [(0, len(passage.text))]
