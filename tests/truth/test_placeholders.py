"""Placeholders of all families: each is found whole in a text, and text that only looks like one is not."""

import pytest

from nmt.extensions.texts.branches import written_out
from nmt.extensions.texts.losses import kept_in, ways_to_ask
from nmt.extensions.texts.markup import parse, plain_passage
from nmt.extensions.texts.passages import Passage, escaped
from nmt.extensions.texts.placeholders import FAMILIES, placeholders
from nmt.extensions.texts.unseen import with_unseen_signs
from nmt.text.pipeline import Side
from nmt.text.settings import SideSettings
from nmt.text.vocabulary import WordVocabulary

EXAMPLES = {
    "address": ["https://x.org/a?b=1", "www.example.org", "me.you+x@example.org"],
    "mustache {{ x | f }}": [
        "{{name}}", "{{ user.name }}", "{{ value | date: 'short' }}", "{{{raw}}}", "{{#if x}}", "{{ f({a: 1}) }}",
    ],
    "tag {% x %}, {# x #}": ["{% user.name %}", "{%- if a > 3 -%}", "{# a note #}"],
    "ERB, EJS <%= x %>, PHP <?= x ?>": ["<%= user.name %>", "<% end %>", "<%- x -%>", "<?= $x ?>", "<?php echo $u->x; ?>"],
    "quoted '{x}'": ["'{name}'"],
    "shell ${x}, Ruby #{x}, %{x}": ["${ user.name }", "${x}", "#{name}", "%{count}", "@{x}"],
    "call $t(x), \\(x)": ["$t(key.other)", "$(HOME)", "\\(user.name)"],
    "variable $x": ["$name"],
    "LaTeX \\x{y}": ["\\textbf{sees}", "\\cite[p. 5]{knuth}", "\\frac{1}{2}"],
    "Svelte {#if x}": ["{#if x > 3}", "{:else}", "{/if}", "{@html text}"],
    "braces {x}, {0:N2}, {x!r:>10}, { $x }, {x, date, short}": [
        "{}", "{0}", "{name}", "{0:N2}", "{0,10:N2}", "{x!r:>10}", "{:.2f}", "{ $partialSize }", "{0, number}",
        "{today, date, short}", "{a.b[0]}", "{ NUMBER($n, a: 1) }", "{ -brand-name }", "{!$User.Name}",
        "{n, number, #,##0.00}", "{name|upper}",
    ],
    "Python %(x)s": ["%(name)s", "%(n)03d"],
    "Windows %X%": ["%PATH%", "%%name%%"],
    "printf %s, %1$s, %-5.2f, %@": ["%s", "%1$s", "%-5.2f", "%@", "%lu", "%lld", "%02d", "%1$@"],
    "Qt %1, %L1": ["%1", "%L1", "%n"],
    "Drupal %x, @x": ["%count", "@count", "@user-name"],
    "Vue @:x": ["@:message.hello", "@.lower:name"],
    "Laravel :x": [":name", ":smile:"],
    "underlined __x__": ["__count__", "__user_name__"],
    "number signs #x#": ["#name#", "##name##"],
    "Mailchimp *|X|*": ["*|FNAME|*"],
    "code `x`": ["`git log`"],
    "brackets [[x]], [x y=z]": ["[[name]]", '[gallery ids="1,2"]'],
    "note [1], [^x]": ["[^note]"],
    "bracket [x]": ["[name]", "[USER_NAME]", "[your-name]"],
    "tag <x>": ["<b>", "</b>", '<a href="x?y=1">', "<br/>"],
    "entity &x;": ["&nbsp;", "&#8212;", "&#x2014;"],
    "power 10², m³": ["10²", "m³"],
    "sign after a word": [],
    "emoji": ["🐶", "👍🏽", "👨‍👩‍👧", "❤️"],
}  # fmt: skip
ALL = [example for examples in EXAMPLES.values() for example in examples]


def test_each_family_has_an_example():
    assert list(EXAMPLES) == list(FAMILIES)


@pytest.mark.parametrize("example", ALL)
@pytest.mark.parametrize(
    "sentence", ["The girl sees {} in the garden.", "The girl sees {}.", "{} sees, and sings: {}!"]
)
def test_a_placeholder_is_found_whole_and_comes_back_as_it_was(example, sentence):
    text = sentence.replace("{}", example)
    assert placeholders(text) == [example] * sentence.count("{}")
    for markup in ("html", "xml"):
        given = escaped(text)
        for part in parse(given, markup):
            if isinstance(part, Passage):
                assert not part.has_words or all(example not in way.text for way in ways_to_ask(part, True)[-1:])
        assert joined(parse(given, markup), escaped) == given


@pytest.mark.parametrize(
    "text",
    [
        "It is 10:30, e.g. :) or :-D; 50% of us, 50 % of a @ b, 100 %.",
        "A & B, R&D, C#, 5 $ and $5, US$ 3, #1, 1/2, 3 < 4 > 2, x<y and z>w",
        "Note: see below (and above) [and there] {and here}.",
        "[music]", "He said: yes; at 7 p.m. * and ** and _ and __ and -- or a_b",
        "C:\\temp\\new, and/or, §5, ¿qué?, «ja», 'so', `", "50%ige Lösung, 3,5 %",
    ],
)  # fmt: skip
def test_text_that_only_looks_like_a_placeholder_is_text(text):
    assert placeholders(text) == []


def all_parts(text):
    """The parts of a text with its messages written out."""
    wholes = parse(text, "xml")
    return [part for whole in wholes for part in ([whole] if isinstance(whole, str) else written_out(whole, "xml"))]


def joined(parts, write):
    return "".join(part if isinstance(part, str) else part.written(write) for part in parts)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{n, plural, one {# dog} other {# dogs}}", "{n, plural, one {# DOG} other {# DOGS}}"),
        ("I see {n, plural, =0 {no} other {#}}!", "{n, plural, =0 {I SEE NO!} other {I SEE #!}}"),
        ("{g,select,male{He}other{<b>They</b>}} see {x}.", "{g,select,male{HE SEE {x}.}other{<b>THEY</b> SEE {x}.}}"),
        (
            "{a, plural, other {# cats}} and {b, plural, other {# dogs}}",
            "{a, plural, other {{b, plural, other {{a, number} CATS AND # DOGS}}}}",
        ),
        ("{a, plural, other {{g, select, other {# '{'cats}}}}", "{a, plural, other {{g, select, other {# '{'CATS}}}}"),
        ("<b>One {n, plural, other {two}}</b> three", "{n, plural, other {<b>ONE TWO</b> THREE}}"),
    ],
)
def test_a_message_is_translated_in_its_branches(text, wanted):
    assert joined(all_parts(text), str.upper) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "{n, plural, one {a dog} other {dogs",
        "{n, plural, other {a<br/>b}}",
        "{ $n -> [one] a dog *[other] dogs }",
        "{a, plural, offset:1 other {#}} and {b, plural, other {#}}",
        " ".join(f"{{n{i}, plural, one {{a}} other {{b}}}}" for i in range(20)),
        "{a,plural,b{" * 5000,
    ],
)
def test_a_message_that_cannot_be_expanded_is_reported_and_kept(text):
    parts = [
        part
        for whole in parse(text, "xml")
        for part in ([whole] if isinstance(whole, str) else written_out(whole, "xml"))
    ]
    assert "".join(part if isinstance(part, str) else part.written(escaped) for part in parts) == text
    assert any(item.kind == "problem" for part in parts if isinstance(part, Passage) for item in part.kept)


@pytest.mark.parametrize(
    ("translation", "is_spaced", "wanted"),
    [
        ("sieht{x}.", True, "sieht {x}."),
        ("sieht {x} heute", True, "sieht {x} heute"),
        ("{x}heute", True, "{x} heute"),
        ("看{x}了", True, "看{x}了"),
        ("dit{x} et", False, "dit{x} et"),
        ("sieht es", True, None),
        ("{x} und {x}", True, None),
        ("{x} und {y}", True, None),
    ],
)
def test_placeholders_keep_their_spaces_and_lost_or_invented_ones_are_detected(translation, is_spaced, wanted):
    found = kept_in(plain_passage("sees {x} today"), translation, is_spaced)
    assert (found and found[0]) == wanted


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("dogs at 10:30, (100) and $1,234.56!", ["10:30", "100", "$1,234.56"]),
        ("\u266a dogs \u2192 \u00a9 2024 \u266a", ["\u266a", "\u2192", "\u00a9", "2024", "\u266a"]),
        ("\u0643\u0644\u0628 \u0661\u0662 \u2605", ["\u0661\u0662", "\u2605"]),  # Arabic digits
        (
            "<2de> \u201cdogs\u201d \u2013 A4, 5th, R&D, dog's \u0928\u093f 42",
            [],
        ),  # punctuation, words and what the vocabulary has
    ],
)
def test_symbols_and_numbers_missing_from_the_vocabulary_are_kept(text, kept):
    settings = SideSettings("en", "none", False, False, "none", "none", user_symbols=("<2de>",))
    side = Side(settings, WordVocabulary(["<2de>", "dogs", "at", "and", "42"]))
    passage = with_unseen_signs(plain_passage(text), side, str)
    assert [item.raw for item in passage.kept] == kept
    assert passage.written(str) == text
