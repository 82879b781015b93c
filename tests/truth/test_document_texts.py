"""Which bytes of a document are text: a capitalising translator changes these and no others."""

import encodings
import html
import pkgutil
import re
from types import SimpleNamespace

import pytest

from nmt import registry
from nmt.errors import InputError, UserError
from nmt.formats.base import Languages
from nmt.translate.line_warnings import LineWarnings
from nmt.translate.results import Candidate, Translation


def in_capitals(format, content, folder, columns=(), change=str.upper):
    """A document with its texts in capitals, and the outcome of each text."""
    path = folder / "document"
    path.write_bytes(content.encode())
    options = SimpleNamespace(retranslate=False, columns=columns, format=format)
    document = registry.find("format", format).cls(options).read(path)
    texts = document.texts(Languages("en", "de"))
    capitals = [
        re.sub(r"(<[^<>]*>|&\w+;|\{\{[^{}]*\}\})|([^<&{]+|.)", lambda found: found[1] or change(found[2]), text)
        for text in texts
    ]
    report = document.write(
        [Translation([Candidate(text, [], 0.0, 0.0)]) for text in capitals], LineWarnings("document")
    )
    return document.content().decode(), report


XLIFF_WITH_CODE = (
    '<xliff version="1.2"><file source-language="en" target-language="de"><body><trans-unit id="1"><source>A'
    "<ph id='1'>&lt;img alt='<sub>b</sub>'&gt;</ph></source></trans-unit></body></file></xliff>"
)
CAPITALS = {
    "html": (
        "html",
        '<!DOCTYPE html>\n<html lang="en">\n<head><title>a &amp; b</title><style>p {}</style>\n'
        '<meta name="description" content="c"><meta name="viewport" content="width=1"></head>\n'
        '<body class="d">\n<!-- e -->\n<script>var f = "<p>g</p>";</script>\n'
        "<p>h <b>i</b> <code>j</code>&nbsp;k<br>l</p>\n<ul>\n  <li>m</li>\n  <li>n <ul><li>o</li></ul></li>\n</ul>\n"
        '<img alt="p" src="q.png"><input type="submit" value="r"><input type="hidden" value="s" placeholder="t">\n'
        '<p translate="no">u</p><pre>\n v\n</pre><td>5 %</td></body></html>\n',
        '<!DOCTYPE html>\n<html lang="de">\n<head><title>A &amp; B</title><style>p {}</style>\n'
        '<meta name="description" content="C"><meta name="viewport" content="width=1"></head>\n'
        '<body class="d">\n<!-- e -->\n<script>var f = "<p>g</p>";</script>\n'
        "<p>H <b>I</b> <code>j</code>&nbsp;K<br>L</p>\n<ul>\n  <li>M</li>\n  <li>N <ul><li>O</li></ul></li>\n</ul>\n"
        '<img alt="P" src="q.png"><input type="submit" value="R"><input type="hidden" value="s" placeholder="T">\n'
        '<p translate="no">u</p><pre>\n v\n</pre><td>5 %</td></body></html>\n',
    ),
    "markdown blocks": (
        "markdown",
        "---\ntitle: a b\nid: c\n---\n\n# d #\n\ne\n=\n\n> f\n> g\n>\n> - h\n>   i\n\n1. j\n   - [ ] k  \n     l\n\n"
        "```\nm\n```\n\n    n\n\n| o | p |\n|:--|--:|\n| q | r \\| s |\n\n<div>\nt\n</div>\n\nu[^v]\n\n[^v]: w\n\n"
        '!!! note "x"\n    y\n\n::: tip\nz\n:::\n',
        "---\ntitle: A B\nid: c\n---\n\n# D #\n\nE\n=\n\n> F G\n>\n> - H I\n\n1. J\n   - [ ] K  \n     L\n\n"
        "```\nm\n```\n\n    n\n\n| O | P |\n|:--|--:|\n| Q | R \\| S |\n\n<div>\nT\n</div>\n\nU[^v]\n\n[^v]: W\n\n"
        '!!! note "X"\n    Y\n\n::: tip\nZ\n:::\n',
    ),
    "markdown inside": (
        "markdown",
        'a *b* **c** ~~d~~ `e` [f](g "h") [i][j] [k] ![l](m "n") <https://o.example> <b>p</b> $q$ r\\*s &amp; {#t} :u:\r\n\r\n'
        "[j]: https://v.example\r\n[k]: w\r\n",
        'A *B* **C** ~~D~~ `e` [F](g "H") [I][j] [K][k] ![L](m "N") <https://o.example> <b>P</b> $q$ R\\*S & {#t} :u:\r\n\r\n'
        "[j]: https://v.example\r\n[k]: w\r\n",
    ),
    "titles of markdown": (
        "markdown",
        '::: tip a b\nc\n:::\n\n:::note[d]\ne\n:::\n\n::: f\ng\n:::\n\n[h][i]\n\n[i]: j "k l"\n',
        '::: tip A B\nC\n:::\n\n:::note[D]\nE\n:::\n\n::: f\nG\n:::\n\n[H][i]\n\n[i]: j "K L"\n',
    ),
    "markdown that is kept": (
        "markdown",
        "+++\ntitle = 'a'\nx = \"b\"\n+++\n\nimport C from 'd';\n\n<div translate=\"no\">\n\ne\n\n</div>\n\n"
        '<i class="notranslate">f</i> g<sup>1</sup> [h] [i\nj][]\n\n!!! note\n    k\n\n> [!NOTE]\n> l\n> m\n\n[h]: n\n[i j]: o\n',
        "+++\ntitle = 'A'\nx = \"b\"\n+++\n\nimport C from 'd';\n\n<div translate=\"no\">\n\ne\n\n</div>\n\n"
        '<i class="notranslate">f</i> G<sup>1</sup> [H][h] [I J][i j]\n\n!!! note\n    K\n\n'
        "> [!NOTE]\n> L M\n\n[h]: n\n[i j]: o\n",
    ),
    "json": (
        "json",
        '{\n\t"a": "b \\u00e9 \\"c\\"",\n "d" : ["e", 5, true, {"f": "<b>g</b> {{count}}"}], "h": "" }\n',
        '{\n\t"a": "B \\u00c9 \\"C\\"",\n "d" : ["E", 5, true, {"f": "<b>G</b> {{count}}"}], "h": "" }\n',
    ),
    "json of programs": (
        "json",
        '{"a": "<0>b</0> c", "d": "e | f", "g": "h|i|j", "k": "#fff000", "l": "dd.MM.yyyy", "m": "/n/o.png", "p": "{{q|r}} s"}',
        '{"a": "<0>B</0> C", "d": "E | F", "g": "H|I|J", "k": "#fff000", "l": "dd.MM.yyyy", "m": "/n/o.png", "p": "{{q|r}} S"}',
    ),
    "arb": (
        "json",
        '{"@@locale": "en", "a": "b", "@a": {"description": "c"}}',
        '{"@@locale": "de", "a": "B", "@a": {"description": "c"}}',
    ),
    "messages of an extension": (
        "json",
        '{"a": {"message": "b", "description": "c"}}',
        '{"a": {"message": "B", "description": "c"}}',
    ),
    "csv": ("csv", 'id,en,de\r\n1,"a, b",\r\n2,c,d\r\n3,"e"\r\n', 'id,en,de\r\n1,"a, b","A, B"\r\n2,c,d\r\n3,e,E\r\n'),
    "tsv": ("csv", 'source\ttarget\na "b"\t\n"c\t\n', 'source\ttarget\na "b"\tA "B"\n"c\t"C\n'),
    "vtt": (
        "vtt",
        "WEBVTT - a\n\nNOTE b\n\nSTYLE\n::cue { }\n\nc\n00:01.000 --> 00:02.000 line:0\n<v Anna>d &amp; e</v>\nf\n\n"
        "00:00:03.000 --> 00:00:04.000\n- g <00:00:03.500>h\n- <c.loud>i</c>\n",
        "WEBVTT - a\n\nNOTE b\n\nSTYLE\n::cue { }\n\nc\n00:01.000 --> 00:02.000 line:0\n<v Anna>D &amp; E</v> F\n\n"
        "00:00:03.000 --> 00:00:04.000\n- G <00:00:03.500>H\n- <c.loud>I</c>\n",
    ),
}


@pytest.mark.parametrize("name", CAPITALS)
def test_only_the_texts_of_a_document_change(name, tmp_path):
    format, content, expected = CAPITALS[name]
    assert in_capitals(format, content, tmp_path)[0] == expected


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("format", ["json", "csv", "vtt", "markdown blocks", "html"])
def test_a_byte_order_mark_determines_the_encoding_and_is_kept(format, encoding, tmp_path):
    name, content, expected = CAPITALS[format]
    mark = "" if encoding == "utf-8-sig" else "\ufeff"
    path = tmp_path / "document"
    path.write_bytes((mark + content).encode(encoding))
    document = registry.find("format", name).cls(SimpleNamespace(retranslate=False, columns=())).read(path)
    assert document.content() == path.read_bytes()
    texts = document.texts(Languages("en", "de"))
    document.write([Translation([Candidate(text.upper(), [], 0.0, 0.0)]) for text in texts], LineWarnings("document"))
    assert document.content().startswith((mark + expected[:1]).encode(encoding))


@pytest.mark.parametrize("ending", [".doc", ".odt.gz", ".yml", ".strings", ".ts", ".idml", ".rst"])
def test_an_unreadable_document_is_refused_before_a_model_is_opened(ending, tmp_path, call):
    path = tmp_path / f"text{ending}"
    path.write_text("a\n")
    code, _, errors = call("translate", "--model", tmp_path / "none", "--input", path)
    assert code == 2
    assert path.name in errors


@pytest.mark.parametrize(
    ("format", "content", "kept"),
    [
        ("html", "<svg><text>a</text></svg><textarea>b</textarea><pre>c</pre><i translate='no'>d</i> e", 4),
        ("markdown", '<i translate="no">a</i> b\n\nimport c from "d"\n', 1),
        ("xliff", XLIFF_WITH_CODE, 1),
    ],
)
def test_unchanged_text_is_counted(format, content, kept, tmp_path):
    assert f"; {kept} kept unchanged: {kept} not to be translated" in in_capitals(format, content, tmp_path)[1]


@pytest.mark.parametrize(("language", "joint"), [("ja", ""), ("zh", ""), ("en", " ")])
@pytest.mark.parametrize(
    ("format", "content"), [("srt", "1\n00:00:01,000 --> 00:00:02,000\n{}\n"), ("markdown", "{}\n")]
)
def test_lines_are_joined_as_the_language_writes_words(format, content, language, joint, tmp_path):
    path = tmp_path / "document"
    path.write_text(content.format("a\nb"))
    document = registry.find("format", format).cls(SimpleNamespace(retranslate=False, columns=())).read(path)
    assert document.texts(Languages(language, "de")) == [f"a{joint}b"]


def test_a_branch_of_a_message_is_no_placeholder(tmp_path):
    changes = {"{g, select, male {He} other {They}} a {b}": "{g, select, male {Er a {b}} other {Sie a {b}}}"}
    content = '{"k": "%s"}'
    path = tmp_path / "whole"
    path.write_text(content % next(iter(changes)))
    document = registry.find("format", "json").cls(SimpleNamespace(retranslate=False, columns=())).read(path)
    texts = document.texts(Languages("en", "de"))
    document.write([Translation([Candidate(changes[text], [], 0.0, 0.0)]) for text in texts], LineWarnings("whole"))
    assert document.content().decode() == content % changes[texts[0]]


def test_a_lost_number_is_a_warning(tmp_path, capfd):
    lost = {"a 12 b": "A B", "1,234 c": "1.234 C", "2 d": "D"}
    in_capitals("json", str(list(lost)).replace("'", '"'), tmp_path, change=lambda text: lost.get(text, text))
    assert capfd.readouterr().err.count("12") == 1


@pytest.mark.parametrize("name", CAPITALS)
def test_a_document_without_new_texts_stays_byte_for_byte(name, tmp_path):
    format, content, _ = CAPITALS[name]
    (tmp_path / "document").write_bytes(content.encode())
    options = SimpleNamespace(retranslate=False, columns=(), format=format)
    document = registry.find("format", format).cls(options).read(tmp_path / "document")
    document.texts(Languages("en", "en"))
    assert document.content() == content.encode()


@pytest.mark.parametrize(
    "translation", ["1. a", "- a", "# a", "a *b* c", "a `b` c", "a [b](c)", "a __b__", "a | b", "<b>"]
)
@pytest.mark.parametrize("source", ["x\n", "> x\n", "- x\n", "| x |\n|---|\n", "# x\n"])
def test_special_characters_of_a_translation_do_not_become_markup(source, translation, tmp_path):
    from markdown_it import MarkdownIt

    written, report = in_capitals("markdown", source, tmp_path, change=lambda _: html.escape(translation))
    parser = MarkdownIt("commonmark").enable("table")
    before, after = parser.parse(source), parser.parse(written)
    assert [token.type for token in before] == [token.type for token in after]
    (shown,) = [token for token in after if token.type == "inline"]
    assert {child.type for child in shown.children} <= {"text"}
    text = "".join(child.content for child in shown.children)
    assert text == (translation if "kept" not in report else "x")


def test_columns_of_a_table_are_found_by_name_or_number(tmp_path):
    table = "k;a;b\n1;x;\n2;y;z\n"
    assert in_capitals("csv", table, tmp_path, columns=("a",))[0] == "k;a;b\n1;X;\n2;Y;z\n"
    assert in_capitals("csv", table, tmp_path, columns=("a:b",))[0] == "k;a;b\n1;x;X\n2;y;z\n"
    assert in_capitals("csv", "x;y\n", tmp_path, columns=("2", "1"))[0] == "X;Y\n"
    for columns in [(), ("c",), ("9",)]:
        with pytest.raises(UserError) as refused:
            in_capitals("csv", table, tmp_path, columns=columns)
        assert "a, b" in str(refused.value)


@pytest.mark.parametrize(
    "format, content",
    [("json", b'{"a": }'), ("json", b'{"a": "\xff"}'), ("csv", b'a,b\n"c,d\n'), ("vtt", b"1\n00:01.000 --> 00:02.000\na\n"),
     ("html", b"<p>\xff</p>"), ("markdown", b"\xff"), ("csv", b"a,\xff")],
)  # fmt: skip
def test_a_damaged_document_is_refused_by_file_name(format, content, tmp_path):
    (tmp_path / "document").write_bytes(content)
    with pytest.raises(InputError, match="document"):
        registry.find("format", format).cls(SimpleNamespace(retranslate=False, columns=())).read(tmp_path / "document")


CHARSETS = sorted(
    {module.name for module in pkgutil.iter_modules(encodings.__path__)}
    | {"utf-8", "koi8-r", "rot13", "hex", "..", "x" * 99}
)
COMMON_CHARSETS = {"utf-8", "ascii", "cp1252", "koi8-r"}
DECLARATIONS = {
    "po": 'msgid ""\nmsgstr "Content-Type: text/plain; charset=CHARSET\\n"\n\nmsgid "a \\\\q"\nmsgstr ""\n',
    "html": '<meta charset="CHARSET"><p>a \\q</p>',
    "xliff": '<?xml version="1.0" encoding="CHARSET"?><xliff version="1.2"><file source-language="en" original="a" '
    'target-language="de" datatype="x"><body><trans-unit id="1"><source>a</source></trans-unit></body></file></xliff>',
    "tmx": '<?xml version="1.0" encoding="CHARSET"?><tmx version="1.4"><header/><body><tu><tuv xml:lang="en"><seg>a \\q</seg>'
    "</tuv></tu></body></tmx>",
}


@pytest.mark.parametrize("format", DECLARATIONS)
def test_a_document_is_in_the_charset_that_it_names_or_refused(format, tmp_path):
    refused, path = set(), tmp_path / "document"
    kind = registry.find("format", format).cls(SimpleNamespace(retranslate=False, columns=()))
    for charset in CHARSETS:
        content = DECLARATIONS[format].replace("CHARSET", charset)
        path.write_text(content)
        try:
            document = kind.read(path)
            texts = document.texts(Languages("en", "de"))
        except InputError as error:
            assert str(path) in str(error)
            refused.add(charset)
            continue
        assert [text.partition(" ")[0] for text in texts] == ["a"]
        document.write([Translation([Candidate("ä 猫", [], 0.0, 0.0)])], LineWarnings("document"))
        path.write_bytes(document.content())
        assert charset not in COMMON_CHARSETS or kind.read(path).content() == document.content()
    assert {
        "idna",
        "undefined",
        "punycode",
        "rot_13",
        "rot13",
        "hex",
        "unicode_escape",
        "raw_unicode_escape",
    } <= refused
    assert refused.isdisjoint(COMMON_CHARSETS)
