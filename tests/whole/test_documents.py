"""Translators' documents: untranslated texts get a translation, and everything else is unchanged."""

import gzip
import io
import json
import re
import sys
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from conftest import small_model
from extras import EXTRAS, named_packages
from msgspec import structs
from refusals import assert_refused

from nmt import registry
from nmt.cli.translate import TranslateOptions
from nmt.errors import ArtefactError, InputError
from nmt.extensions.documents.document import UnitDocument
from nmt.extensions.documents.formats.srt import wrap
from nmt.extensions.documents.markers import PLACEHOLDER, TEXT_BREAK, Markers, from_xml, peel, to_xml
from nmt.formats.base import Languages, open_format
from nmt.translate.line_warnings import LineWarnings
from nmt.translate.results import Candidate, Translation

pytest.importorskip("lxml")
pypo = pytest.importorskip("translate.storage.pypo")

PO = r"""# A comment of the translator
msgid ""
msgstr ""
"Project-Id-Version: demo 1\n"
"Language: \n"
"Content-Type: text/plain; charset=UTF-8\n"
"Content-Transfer-Encoding: 8bit\n"
"Plural-Forms: nplurals=3; plural=(n==1 ? 0 : n<5 ? 1 : 2);\n"

#. for the programmer
#: window.c:12
#, c-format
msgctxt "menu"
msgid "open \"%s\"\n"
"at <b>once</b>, or\tlater"
msgstr ""

#, python-format
msgid "one file"
msgid_plural "%(count)d files"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

msgid "E&xit"
msgstr ""

msgid "done"
msgstr "ERLEDIGT"

#, fuzzy
#| msgid "old text"
msgid "new text"
msgstr "alter Text"

#~ msgid "gone"
#~ msgstr "WEG"
"""
PO_TRANSLATED = [
    (
        '#, c-format\nmsgctxt "menu"\nmsgid "open \\"%s\\"\\n"\n"at <b>once</b>, or\\tlater"\nmsgstr ""\n',
        '#, c-format, fuzzy\nmsgctxt "menu"\nmsgid "open \\"%s\\"\\n"\n"at <b>once</b>, or\\tlater"\n'
        'msgstr ""\n"OPEN \\"%s\\"\\n"\n"AT <b>ONCE</b>, OR\\tLATER"\n',
    ),
    (
        '#, python-format\nmsgid "one file"\nmsgid_plural "%(count)d files"\nmsgstr[0] ""\nmsgstr[1] ""\nmsgstr[2] ""\n',
        '#, fuzzy, python-format\nmsgid "one file"\nmsgid_plural "%(count)d files"\n'
        'msgstr[0] "ONE FILE"\nmsgstr[1] "%(count)d FILES"\nmsgstr[2] "%(count)d FILES"\n',
    ),
    ('msgid "E&xit"\nmsgstr ""\n', '#, fuzzy\nmsgid "E&xit"\nmsgstr "E&XIT"\n'),
    ('"Language: \\n"', '"Language: de\\n"'),
]
XLIFF = """<?xml version="1.0" encoding="utf-8"?>
<!-- kept -->
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:my="urn:my" version="1.2">
  <file original="a.html" source-language="en" datatype="html">
    <header><note>kept</note></header>
    <body>
      <group id="g" my:extra="kept">
        <trans-unit id="1">
          <source>press <g id="b" ctype="bold">the <x id="icon"/> button</g> &amp; wait<ph id="p">&lt;br/&gt;</ph></source>
          <note>a note</note>
        </trans-unit>
        <trans-unit id="2">
          <source>done</source>
          <target state="final">ERLEDIGT</target>
        </trans-unit>
        <trans-unit id="3" translate="no"><source>nmt</source></trans-unit>
        <trans-unit id="4">
          <source>copied</source>
          <target state="new">copied</target>
        </trans-unit>
      </group>
    </body>
  </file>
</xliff>
"""
XLIFF_TRANSLATED = [
    (
        'wait<ph id="p">&lt;br/&gt;</ph></source>\n',
        'wait<ph id="p">&lt;br/&gt;</ph></source>\n          <target state="needs-review-translation" '
        'state-qualifier="leveraged-mt">PRESS <g id="b" ctype="bold">THE <x id="icon"/> BUTTON</g> &amp; WAIT'
        '<ph id="p">&lt;br/&gt;</ph></target>\n',
    ),
    (
        '<target state="new">copied</target>',
        '<target state="needs-review-translation" state-qualifier="leveraged-mt">COPIED</target>',
    ),
    ('datatype="html">', 'datatype="html" target-language="de">'),
]
XLIFF2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en">
 <file id="f">
  <unit id="u">
   <originalData><data id="d">&lt;b&gt;</data></originalData>
   <segment id="s1">
    <source>a <pc id="1" dataRefStart="d">bold</pc> word </source>
   </segment>
   <ignorable><source> </source></ignorable>
   <segment id="s2"><source>done</source><target>ERLEDIGT</target></segment>
  </unit>
  <unit id="v" translate="no"><segment><source>nmt</source></segment></unit>
 </file>
</xliff>
"""
XLIFF2_TRANSLATED = [
    (
        " word </source>\n",
        ' word </source>\n    <target>A <pc id="1" dataRefStart="d">BOLD</pc> WORD </target>\n',
    ),
    ('<segment id="s1">', '<segment id="s1" state="translated">'),
    ('srcLang="en"', 'srcLang="en" trgLang="de"'),
]
TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4">
  <header creationtool="x" creationtoolversion="1" segtype="sentence" srclang="en-US" datatype="plaintext"/>
  <body>
    <tu tuid="1">
      <prop type="project">kept</prop>
      <tuv xml:lang="en-US">
        <seg>a <bpt i="1">{\\b </bpt>bold<ept i="1">}</ept> <hi type="term">word</hi></seg>
      </tuv>
    </tu>
    <tu tuid="2"><tuv xml:lang="EN"><seg>done</seg></tuv><tuv xml:lang="de-DE"><seg>ERLEDIGT</seg></tuv></tu>
    <tu tuid="3"><tuv xml:lang="fr"><seg>fini</seg></tuv></tu>
  </body>
</tmx>
"""
TMX_TRANSLATED = [
    (
        '<hi type="term">word</hi></seg>\n      </tuv>\n',
        '<hi type="term">word</hi></seg>\n      </tuv>\n'
        '      <tuv xml:lang="de" creationtool="nmt" creationtoolversion="0.1.0">\n'
        '        <seg>A <bpt i="1">{\\b </bpt>BOLD<ept i="1">}</ept> <hi type="term">WORD</hi></seg>\n      </tuv>\n',
    ),
]
SRT = """\ufeff1
00:00:01,000 --> 00:00:02,500
<i>this sentence is on two lines
of the first cue</i>

2
00:00:03,000 --> 00:00:04,000 X1:40 X2:600 Y1:20 Y2:50
{\\an8}- who is there?
- nobody.

3
00:00:05,000 --> 00:00:06,000
1984

"""
SRT_TRANSLATED = [
    (
        "<i>this sentence is on two lines\nof the first cue</i>",
        "<i>THIS SENTENCE IS ON TWO\nLINES OF THE FIRST CUE</i>",
    ),
    ("{\\an8}- who is there?\n- nobody.", "{\\an8}- WHO IS THERE?\n- NOBODY."),
]
DOCUMENTS = {
    "po": (PO, PO_TRANSLATED),
    "xliff": (XLIFF, XLIFF_TRANSLATED),
    "xliff2": (XLIFF2, XLIFF2_TRANSLATED),
    "tmx": (TMX, TMX_TRANSLATED),
    "srt": (SRT, SRT_TRANSLATED),
}
MESSAGES = [("one", ""), ("two", ""), ("%d of", ""), ("done", "ERLEDIGT"), ("%d", "")]
KEPT = re.compile(rf'<g\ id="\d+">|</g>|<(?:x|ph)\ id="\d+"/>|{PLACEHOLDER.pattern}', re.VERBOSE)
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
PARAGRAPH = (
    '<w:p><w:pPr><w:pStyle w:val="Heading"/></w:pPr>'
    '<w:r><w:rPr><w:lang w:val="en-GB"/></w:rPr><w:t xml:space="preserve">press </w:t></w:r>'
    '<w:proofErr w:type="spellStart"/><w:r><w:t xml:space="preserve">the </w:t></w:r>'
    "<w:r><w:rPr><w:b/></w:rPr><w:t>red</w:t></w:r>"
    '<w:r><w:t xml:space="preserve"> button</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r>'
    '<w:hyperlink r:id="rId1"><w:r><w:rPr><w:u/></w:rPr><w:t xml:space="preserve"> or here</w:t></w:r></w:hyperlink></w:p>'
)
FIELD = (
    '<w:p><w:r><w:t xml:space="preserve">page </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/></w:r>'
    "<w:r><w:instrText>PAGE</w:instrText></w:r>"
    '<w:r><w:fldChar w:fldCharType="end"/></w:r></w:p>'
)
BODY = f"<w:tbl><w:tr><w:tc>{PARAGRAPH}</w:tc></w:tr></w:tbl>{FIELD}<w:p><w:r><w:t>1.2</w:t></w:r></w:p><w:sectPr/>"


def in_word(name: str, content: str) -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n'
        f'<w:{name} xmlns:w="{WORD}" xmlns:r="urn:r" xmlns:mc="urn:mc">{content}</w:{name}>'
    )


def docx(body: str, **parts: str) -> bytes:
    """A Word document with a picture that must not change."""
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", in_word("document", f"<w:body>{body}</w:body>"))
        for name, content in parts.items():
            archive.writestr(f"word/{name}.xml", content)
        archive.writestr("word/media/image1.png", bytes(range(256)))
    return output.getvalue()


def upper(texts: list[str]) -> list[Translation]:
    """Translate into capitals, keeping every marker and placeholder."""

    def capitals(text: str) -> str:
        pieces, end = [], 0
        for part in KEPT.finditer(text):
            pieces += [text[end : part.start()].upper(), part[0]]
            end = part.end()
        return "".join(pieces) + text[end:].upper()

    return [Translation([Candidate(capitals(text), [], 0.0, 0.0)]) for text in texts]


def read_document(path: Path, format: str, retranslate: bool = False) -> UnitDocument:
    options = TranslateOptions(
        model=("none",), input=(str(path),), format=format, retranslate=retranslate, output="none"
    )
    return open_format(format, options).read(path)


def translated(path: Path, format: str, translate=upper, retranslate=False, target="de") -> tuple[bytes, LineWarnings]:
    document, warnings = read_document(path, format, retranslate), LineWarnings("document")
    texts = list(map(from_xml, document.texts(Languages("en", target))))
    translations = translate(texts) if texts else []
    as_xml = [[structs.replace(c, text=to_xml(c.text)) for c in row.candidates] for row in translations]
    rows = zip(translations, as_xml, strict=True)
    document.write([structs.replace(row, candidates=candidates) for row, candidates in rows], warnings)
    return document.content(), warnings


def replaced(text: str, pairs: list[tuple[str, str]]) -> str:
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_only_targets_and_their_metadata_change(name, newline, tmp_path):
    text, changes = DOCUMENTS[name]
    path = tmp_path / "document"
    path.write_bytes(text.replace("\n", newline).encode())
    content, _ = translated(path, name.rstrip("2"))
    assert content.decode() == replaced(text, changes).replace("\n", newline)


@pytest.mark.parametrize(
    ("name", "attribute"), [("xliff", "target-language"), ("xliff2", "trgLang"), ("tmx", "xml:lang")]
)
def test_a_language_region_is_written_in_xml_form(name, attribute, tmp_path):
    (tmp_path / "document").write_text(DOCUMENTS[name][0])
    content, _ = translated(tmp_path / "document", name.rstrip("2"), target="pt_BR")
    assert f'{attribute}="pt-BR"' in content.decode() and "pt_BR" not in content.decode()


def test_text_after_a_multi_paragraph_field_is_still_translated(tmp_path):
    field = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
    begin, end = field.format("begin"), field.format("end")
    link = '<w:hyperlink r:id="rId1"><w:r><w:t>our page</w:t></w:r></w:hyperlink>'
    number = f"{begin}<w:r><w:instrText>PAGEREF</w:instrText></w:r>{field.format('separate')}<w:r><w:t>twelve</w:t></w:r>{end}"
    rest = f'{end}<w:r><w:t xml:space="preserve">see </w:t></w:r>{link}{number}'
    (tmp_path / "document").write_bytes(docx(f"<w:p><w:r><w:t>first</w:t></w:r>{begin}</w:p><w:p>{rest}</w:p>"))
    content, _ = translated(tmp_path / "document", "docx")
    text = zipfile.ZipFile(io.BytesIO(content)).read("word/document.xml").decode()
    assert "OUR PAGE" in text and "twelve" in text


def test_a_target_follows_the_segmented_source_even_without_segments(tmp_path):
    unit = "<trans-unit id='1'><source>One.</source><seg-source>One.</seg-source></trans-unit>"
    head = "<xliff version='1.2'><file source-language='en' target-language='de'><body>"
    (tmp_path / "document").write_text(f"{head}{unit}</body></file></xliff>")
    content, _ = translated(tmp_path / "document", "xliff")
    assert re.findall(r"<(source|seg-source|target)\b", content.decode()) == ["source", "seg-source", "target"]


def test_an_approved_target_is_kept_whatever_its_state(tmp_path):
    target = "<source>One.</source><target state='new'>Eins.</target>"
    units = "".join(f"<trans-unit id='{i}' approved='{i}'>{target}</trans-unit>" for i in ("yes", "no"))
    head = "<xliff version='1.2'><file source-language='en' target-language='de'><body>"
    (tmp_path / "document").write_text(f"{head}{units}</body></file></xliff>")
    content, _ = translated(tmp_path / "document", "xliff")
    assert re.findall(r">([^<>]+)</target>", content.decode()) == ["Eins.", "ONE."]


@pytest.mark.parametrize("name", ["po", "xliff", "xliff2", "tmx"])
def test_a_fully_translated_document_is_unchanged_byte_for_byte(name, tmp_path):
    path = tmp_path / "document"
    path.write_text(replaced(*DOCUMENTS[name]))

    def unasked(texts: list[str]) -> list[Translation]:
        raise AssertionError(texts)

    assert translated(path, name.rstrip("2"), unasked)[0] == path.read_bytes()


@pytest.mark.parametrize("name", ["po", "xliff", "xliff2", "tmx"])
def test_retranslate_replaces_translations_and_no_other_text(name, tmp_path):
    path = tmp_path / "document"
    path.write_text(DOCUMENTS[name][0])
    content = translated(path, name.rstrip("2"), retranslate=True)[0].decode()
    assert "ERLEDIGT" not in content and "DONE" in content and "NMT" not in content
    assert ("WEG" in content) == (name == "po")  # of an obsolete message


def test_texts_get_markers_for_elements_and_keep_placeholders_as_text(tmp_path):
    path = tmp_path / "document"
    texts: list[str] = []

    def record(given: list[str]) -> list[Translation]:
        texts.extend(given)
        return upper(given)

    path.write_text(XLIFF)
    translated(path, "xliff", record)
    assert texts == ['press <g id="1">the <x id="2"/> button</g> & wait', "copied"]
    texts.clear()
    path.write_text(PO)
    translated(path, "po", record)
    assert texts[:3] == ['open "%s"', 'at <g id="1">once</g>, or', "later"]
    assert texts[3:] == ["one file", "%(count)d files", "%(count)d files", "Exit"]


def lossy(texts: list[str]) -> list[Translation]:
    """Translate without keeping markers and placeholders."""
    return [Translation([Candidate(KEPT.sub("", text).upper(), [], 0.0, 0.0)]) for text in texts]


@pytest.mark.parametrize(
    ("format", "document", "suggestion"),
    [
        ("po", PO, '# machine translation, not used because the translation lacks <b>, %s: OPEN ""'),
        (
            "xliff",
            XLIFF,
            '<alt-trans origin="machine translation"><target state-qualifier="mt-suggestion" xml:lang="de">'
            "PRESS THE  BUTTON &amp; WAIT</target></alt-trans>",
        ),
        ("xliff", XLIFF2, None),
        ("tmx", TMX, None),
    ],
)
def test_a_translation_without_a_tag_or_placeholder_is_only_a_suggestion(
    format, document, suggestion, tmp_path, capsys
):
    path = tmp_path / "document"
    path.write_text(document)
    content, warnings = translated(path, format, lossy)
    warnings.log_counts()
    message = capsys.readouterr().err
    assert "left untranslated: the translation lacks" in message and "left untranslated\n" in message
    if suggestion is None:
        assert content == path.read_bytes()
        return
    assert suggestion in content.decode()
    assert 'msgstr "OPEN' not in content.decode() and "<target>PRESS" not in content.decode()
    path.write_bytes(content)
    assert "old text" in content.decode() or format == "xliff"
    assert translated(path, "po", lossy)[0] == content if format == "po" else True  # no second comment


def test_a_failed_text_is_counted_and_its_unit_unchanged(tmp_path, capsys):
    path = tmp_path / "document"
    path.write_text(SRT)
    content, warnings = translated(path, "srt", lambda texts: [Translation([], "no finite probability") for _ in texts])
    assert content == path.read_bytes() and warnings.num_failed == 2
    assert "document:3: not translated: no finite probability" in capsys.readouterr().err
    content, warnings = translated(
        path, "srt", lambda texts: [Translation([Candidate("", [], 0.0, 0.0)]) for _ in texts]
    )
    assert content == path.read_bytes() and warnings.num_failed == 2
    assert "document:3: not translated: the translation is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "translation", "words"),
    [
        ("a %s b %d", "A %d B %s", ""),
        ("a %s", "A", "lacks %s"),
        ("a %s", "A %s %s", "repeats or adds %s"),
        ("100% of it, 50 % off", "GANZ UND 50 %", ""),
        ("{0} and {name!r:>4} and {{x}}", "{{x}} {name!r:>4} {0}", ""),
        ("$HOME and ${HOME}", "$HOME", "lacks ${HOME}"),
        ("%1 of %2", "%2 VON %1", ""),
        ("%(n)s &nbsp; 5%%", "%(n)s &nbsp; 5", "lacks %%"),
        ('a <g id="1">b</g>', 'A </g>B<g id="1">', "closes a tag"),
        ('a <x id="1"/>', "A", "lacks <br>"),
    ],
)
def test_a_problem_names_the_placeholder(source, translation, words):
    markers = Markers()
    markers.alone("<br>")
    problem = markers.problem(source, translation)
    assert words in problem if words else not problem


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('<g id="1">all of it</g>', "all of it"),
        ('<g id="1">one</g> and <g id="2">two</g>', '<g id="1">one</g> and <g id="2">two</g>'),
        (' <x id="1"/><g id="2"> <x id="3"/>in <x id="4"/> it </g>\t', 'in <x id="4"/> it'),
        ("</g>half", "half"),
        ('<x id="1"/>', ""),
        ("", ""),
    ],
)
def test_markers_around_a_line_are_not_sent_to_the_model(line, text):
    peeled = peel(line)
    assert peeled.text == text and "".join(peeled) == line


def test_unbalanced_tags_are_kept_in_their_order():
    markers, text = Markers(), "a <b>b <i>c</b> d</i> <br/> e < f"
    marked = markers.mark_tags(text)
    assert marked == 'a <g id="1">b <x id="2"/>c</g> d<x id="3"/> <br id="4"/> e < f'
    assert markers.restore(marked) == text


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short", ["short"]),
        ("x" * 21 + " " + "y" * 20, ["x" * 21 + " " + "y" * 20]),
        ("x" * 22 + " " + "y" * 20, ["x" * 22, "y" * 20]),
        (
            '<font color="red">' + "x" * 21 + "</font> " + "y" * 20,
            ['<font color="red">' + "x" * 21 + "</font> " + "y" * 20],
        ),
        ("z" * 50, ["z" * 25, "z" * 25]),
        ("中" * 22, ["中" * 11, "中" * 11]),
        ("- " + "中" * 23 + "。", ["- " + "中" * 12, "中" * 11 + "。"]),
    ],
)
def test_cues_are_wrapped_at_42_characters(text, lines):
    assert wrap(text) == lines


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("&File", "&Datei"),
        ("E&xit", "&Beenden"),
        ("AT&T", "AT&T"),
        ("a &amp; b", "a &amp; b"),
        ("?a=1&b=2", "?a=1&b=2"),
    ],
)
def test_an_accelerator_key_is_placed_in_the_translation(text, translation, tmp_path):
    path = tmp_path / "a.po"
    path.write_text(f'msgid "{text}"\nmsgstr ""\n')
    words = {"File": "Datei", "Exit": "Beenden"}
    content = translated(
        path, "po", lambda texts: [Translation([Candidate(words.get(t, t), [], 0.0, 0.0)]) for t in texts]
    )[0]
    assert f'msgstr "{translation}"' in content.decode()


def test_a_template_gets_a_header_for_the_language(tmp_path):
    path = tmp_path / "a.pot"
    path.write_text('msgid "one"\nmsgid_plural "many"\nmsgstr[0] ""\nmsgstr[1] ""\n')
    content = translated(path, "po")[0].decode()
    assert (
        content.startswith('msgid ""\nmsgstr ""\n"MIME') and "Language: de\\n" in content and "charset=UTF-8" in content
    )
    assert "nplurals=2; plural=(n != 1);" in content
    assert 'msgstr[0] "ONE"\nmsgstr[1] "MANY"\n' in content


def test_segments_of_xliff_are_translated_one_by_one(tmp_path):
    path = tmp_path / "a.xlf"
    cut = '<mrk mtype="seg" mid="1">One <g id="b">two</g>.</mrk> <mrk mtype="seg" mid="2">Three.</mrk>'
    path.write_text(
        '<xliff version="1.2"><file source-language="en" target-language="de"><body><trans-unit id="1">'
        f"<source>One two. Three.</source><seg-source>{cut}</seg-source></trans-unit></body></file></xliff>"
    )
    content = translated(path, "xliff")[0].decode()
    expected = cut.replace("One", "ONE").replace("two", "TWO").replace("Three", "THREE")
    assert f'<target state="needs-review-translation" state-qualifier="leveraged-mt">{expected}</target>' in content
    assert f"<seg-source>{cut}</seg-source>" in content


def test_a_language_that_differs_from_the_models_is_a_warning(tmp_path, capsys):
    path = tmp_path / "a.xlf"
    path.write_text(XLIFF.replace('"en"', '"fr-CA"'))
    translated(path, "xliff")
    assert "the source language of the document is 'fr-CA', but the model's is 'en'" in capsys.readouterr().err


def test_word_documents_keep_formatting_links_fields_and_other_parts(tmp_path):
    path = tmp_path / "a.docx"
    path.write_bytes(docx(BODY, header1=in_word("hdr", "<w:p><w:r><w:t>top</w:t></w:r></w:p>"), styles="<kept/>"))
    content, _ = translated(path, "docx")
    before, after = zipfile.ZipFile(path), zipfile.ZipFile(io.BytesIO(content))
    assert after.namelist() == before.namelist() and after.testzip() is None
    for name in ("[Content_Types].xml", "word/styles.xml", "word/media/image1.png"):
        assert after.read(name) == before.read(name)
    assert '<w:t xml:space="preserve">TOP</w:t>' in after.read("word/header1.xml").decode()
    text = '<w:t xml:space="preserve">'
    expected = BODY.replace(
        PARAGRAPH,
        '<w:p><w:pPr><w:pStyle w:val="Heading"/></w:pPr>'
        f'<w:r><w:rPr><w:lang w:val="de"/></w:rPr>{text}PRESS THE </w:t></w:r>'
        f"<w:r><w:rPr><w:b/></w:rPr>{text}RED</w:t></w:r>"
        f'<w:r><w:rPr><w:lang w:val="de"/></w:rPr>{text} BUTTON</w:t></w:r>'
        '<w:r><w:footnoteReference w:id="2"/></w:r>'
        f'<w:hyperlink r:id="rId1"><w:r><w:rPr><w:u/></w:rPr>{text} OR HERE</w:t></w:r></w:hyperlink></w:p>',
    ).replace("page ", "PAGE ")
    assert after.read("word/document.xml").decode() == in_word("document", f"<w:body>{expected}</w:body>")


def test_content_controls_and_moved_text_of_word_are_translated_but_choices_are_not(tmp_path):
    def control(properties: str, text: str) -> str:
        return f"<w:sdt><w:sdtPr>{properties}</w:sdtPr><w:sdtContent><w:r>{text}</w:r></w:sdtContent></w:sdt>"

    def body(change) -> str:
        text = [f'<w:t xml:space="preserve">{change(text)}</w:t>' for text in ("name: ", "enter", " moved")]
        moved = f'<w:moveTo w:id="3"><w:r>{text[2]}</w:r></w:moveTo>'
        choice = control("<w:dropDownList/>", "<w:t>choice</w:t>")
        return f"<w:p><w:r>{text[0]}</w:r>{control('<w:text/>', text[1])}{moved}{choice}</w:p>"

    path = tmp_path / "a.docx"
    path.write_bytes(docx(body(str)))
    content = zipfile.ZipFile(io.BytesIO(translated(path, "docx")[0])).read("word/document.xml").decode()
    assert content == in_word("document", f"<w:body>{body(str.upper)}</w:body>")


def test_a_subtitle_with_an_empty_line_is_translated_as_a_whole(tmp_path):
    path = tmp_path / "a.srt"
    path.write_text(
        "1\n00:00:01,000 --> 00:00:02,000\nhello\n\nagain\n\n2\n00:00:03,000 --> 00:00:04,000\n\nlater\n\n3\n"
        "00:00:05,000 --> 00:00:06,000\n\n\n4\n00:00:07,000 --> 00:00:08,000\nlast\n"
    )
    assert translated(path, "srt")[0].decode() == (
        "1\n00:00:01,000 --> 00:00:02,000\nHELLO AGAIN\n\n2\n00:00:03,000 --> 00:00:04,000\nLATER\n\n3\n"
        "00:00:05,000 --> 00:00:06,000\n\n\n4\n00:00:07,000 --> 00:00:08,000\nLAST\n"
    )


def test_an_unnumbered_first_cue_is_translated_even_after_a_byte_order_mark(tmp_path):
    path = tmp_path / "a.srt"
    cues = "\ufeff00:00:01,000 --> 00:00:02,000\n{}\n\n00:00:03,000 --> 00:00:04,000\n{}\n"
    path.write_text(cues.format("first", "second"))
    assert translated(path, "srt")[0].decode() == cues.format("FIRST", "SECOND")


def test_a_message_that_lacks_a_plural_form_gets_only_that_form(tmp_path):
    path = tmp_path / "a.po"
    path.write_text(PLURAL := 'msgid "one"\nmsgid_plural "many"\nmsgstr[0] "eins"\nmsgstr[1] ""\n')
    content = translated(path, "po")[0].decode()
    assert content.endswith(PLURAL.replace('[1] ""', '[1] "MANY"')) and "#, fuzzy" in content


def test_a_text_box_of_word_and_the_paragraph_around_it_are_translated(tmp_path):
    path = tmp_path / "a.docx"
    box = "<w:pict><w:txbxContent><w:p><w:r><w:t>inner</w:t></w:r></w:p></w:txbxContent></w:pict>"
    path.write_bytes(docx(f"<w:p><w:r><w:t>outer</w:t>{box}<w:br/><w:t>line</w:t></w:r></w:p>"))
    content = zipfile.ZipFile(io.BytesIO(translated(path, "docx")[0])).read("word/document.xml").decode()
    assert re.sub("<[^>]*>", " ", content).split() == ["OUTER", "INNER", "LINE"]
    assert "<w:br/>" in content


ENTITY = (
    '<!DOCTYPE xliff [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><xliff version="1.2"><file>&b;</file></xliff>'
)
EXTERNAL = '<!DOCTYPE xliff [<!ENTITY a SYSTEM "file:///etc/passwd">]><xliff version="1.2"><file>&a;</file></xliff>'
DEEP = '<xliff version="1.2">' + "<file>" * 250 + "</file>" * 250 + "</xliff>"


@pytest.mark.parametrize(
    ("format", "content", "code", "message"),
    [
        ("xliff", ENTITY, 4, "declares entities"),
        ("xliff", EXTERNAL, 4, "declares entities"),
        ("xliff", DEEP, 4, "more than 200 levels deep"),
        ("xliff", '<xliff version="1.2">\n<file>\n</xliff>', 3, ":3: not valid XLIFF: mismatched tag"),
        ("xliff", "<html/>", 3, "the root element is <html"),
        ("tmx", XLIFF, 3, "the root element is <xliff>"),
        ("tmx", "", 3, "no element found"),
        ("po", 'msgid "a"\nmsgstr "b\n', 3, "line 2"),
        ("po", 'msgid "a"\nmsgstr ""\n\nmsgid "b"\n', 3, "the last message has no msgstr"),
        ("po", '#, fuzzy\nmsgid "a"\nmsgid_plural "b"\nmsgstr ""\n', 3, "do not match"),
        ("po", "plain text\n", 3, "not valid PO"),
        ("po", b'msgid "\xff"\nmsgstr ""\n', 3, "not in the encoding that its header declares"),
        ("srt", b"1\n00:00:01,000 --> 00:00:02,000\n\xff\n", 3, ":3: not UTF-8"),
        ("srt", "1\n00:00:01 --> 00:00:02\na\n", 3, ":2: not valid SRT"),
        ("srt", "plain text\n", 3, "no timing line"),
        ("docx", "plain text", 3, "not valid DOCX"),
        ("docx", docx("")[:-60], 3, "not valid DOCX"),
        ("docx", docx("<w:p>"), 3, "word/document.xml:2: not valid DOCX"),
        ("docx", docx(BODY).replace(b"word/document.xml", b"word/documenT.xml"), 3, "word/document.xml is missing"),
    ],
)
def test_a_damaged_or_hostile_document_is_an_error_and_writes_nothing(format, content, code, message, tmp_path, call):
    path, output = tmp_path / "document", tmp_path / "output"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = call("translate", "--model", tmp_path / "none", "--format", format, "--input", path, "--output", output)
    assert_refused(result, code, message, str(path))
    assert not output.exists()


def test_a_zip_bomb_is_rejected_before_unpacking(tmp_path):
    path = tmp_path / "a.docx"
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * ((64 << 20) + 1))
    path.write_bytes(output.getvalue())
    with pytest.raises(ArtefactError, match="the limit is"):
        read_document(path, "docx")


def test_a_document_that_is_too_large_is_rejected(tmp_path):
    path = tmp_path / "a.po"
    with path.open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(InputError, match="split it"):
        read_document(path, "po")


@pytest.mark.parametrize(("format", "module"), [("po", "translate"), ("tmx", "lxml")])
def test_a_missing_package_is_reported_with_the_command_to_install_it(format, module, tmp_path, monkeypatch, call):
    path = tmp_path / "document"
    path.write_text("")
    of_format = [f"nmt.extensions.documents.{name}" for name in ("safe_xml", f"formats.{format}")]
    for name in [name for name in sys.modules if name.split(".")[0] == module or name in of_format]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(registry._shelf.parts, ("format", format), raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    result = call("translate", "--model", tmp_path / "none", "--format", format, path)
    assert result.code == 2
    assert f"--format {format}" in result.err and named_packages(result.err) == EXTRAS["formats"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--format=po"], "name one file"),
        (["a.txt", "b.SRT"], "name one file"),
        (["a.po.gz", "--json"], "--format text"),
        (["--format=po", "-"], "name one file"),
        (["--format=po", "a.po", "b.po"], "name one file"),
        (["--format=docx", "a.docx"], "add --output FILE.docx"),
        (["--format=po", "a.po", "--json"], "--json cannot be combined"),
        (["--format=po", "a.po", "--output=a.po"], "name the same file"),
    ],
)
def test_options_incompatible_with_documents_are_rejected(flags, message, call):
    assert_refused(call("translate", "--model=none", *flags), 2, message)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(
        tmp_path_factory.mktemp("documents") / "model", d_model=8, d_ff=8, heads=1, encoder_layers=1, decoder_layers=1
    )


def test_a_model_translates_a_document(model, tmp_path, call):
    source, output, stats = tmp_path / "a.po", tmp_path / "b.po", tmp_path / "stats.json"
    source.write_text('msgid "ban des"\nmsgstr ""\n\nmsgid "kit"\nmsgstr "KIT"\n')
    line = tmp_path / "line"
    line.write_text("ban des\n")
    flags = ["--model", model, "--engine=torch"]
    expected = call("translate", *flags, line).out.strip()
    result = call("translate", *flags, "--format=po", source, "--output", output, "--stats", stats)
    assert result.code == 0 and result.out == "" and expected
    _, first, second = pypo.pofile.parsestring(output.read_bytes()).units
    assert (first.source, first.target, first.isfuzzy()) == ("ban des", expected, True)
    assert (second.source, second.target, second.isfuzzy()) == ("kit", "KIT", False)
    assert '"lines": 1' in stats.read_text()
    assert call("translate", *flags, "--format=po", source).out == output.read_text()


def test_several_ranks_translate_a_document_like_one(model, tmp_path, call):
    source = tmp_path / "a.po"
    words = ["Ban <b>des</b> &amp; kit. Lora {x}!", "Kit", "Ban %d"]
    source.write_text("".join(f'msgid "{i} {word}"\nmsgstr ""\n\n' for i in range(3) for word in words))
    files = [tmp_path / "alone.po", tmp_path / "shared.po"]
    for file, flags in zip(files, ([], ["--devices=2", "--device=cpu"]), strict=True):
        arguments = ["--engine=torch", "--format=po", source, "--output", file, *flags]
        assert call("translate", "--model", model, *arguments).code == 0
    alone, shared = (file.read_text() for file in files)
    assert alone == shared and alone.count("<b>") == 6 and alone.count("&amp;") == 6 and "fuzzy" in alone


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--format=po", "--replace-unk"], "--replace-unk works only on lines of text"),
        (["--format=po", "--markup=html"], "--markup and --format cannot be combined"),
        (["--retranslate", "--format=text"], "--retranslate works only on documents"),
    ],
)
def test_options_that_no_document_format_has_are_rejected(flags, message, model, tmp_path, call):
    (tmp_path / "a.po").write_text('msgid "ban"\nmsgstr ""\n')
    assert_refused(call("translate", "--model", model, tmp_path / "a.po", *flags), 2, message)


def test_a_document_is_not_translated_if_its_output_cannot_be_written(model, tmp_path, call):
    (tmp_path / "a.po").write_text('msgid "ban"\nmsgstr ""\n')
    result = call("translate", "--model", "none", "--format=po", tmp_path / "a.po", "--output", tmp_path / "b" / "c.po")
    assert result.code != 0 and "b" in result.err and "none" not in result.err


def test_the_name_of_a_document_determines_its_format(model, tmp_path, call):
    cue = "1\n00:00:01,000 --> 00:00:02,000\nban kit\n"
    for name in ("a.SRT", "a.txt"):
        (tmp_path / name).write_text(cue)
    (tmp_path / "a.srt.gz").write_bytes(gzip.compress(cue.encode()))
    flags = ["translate", "--model", model, "--engine=torch"]
    named, packed, lines = (call(*flags, tmp_path / name) for name in ("a.SRT", "a.srt.gz", "a.txt"))
    assert named.out == packed.out and named.out.splitlines()[:2] == cue.splitlines()[:2]
    assert "srt: translated 1 of 1 texts" in named.err
    assert "--format srt" in lines.err and "translated 1" not in lines.err
    assert call(*flags, tmp_path / "a.SRT", "--format=text").out == lines.out
    (tmp_path / "a.bin").write_bytes(b"%PDF-1.4\n")
    assert_refused(call(*flags, tmp_path / "a.bin"), 2, "PDF")


def test_each_text_of_a_document_is_counted(tmp_path, capsys):
    path = tmp_path / "a.po"
    path.write_text("\n".join(f'msgid "{i} {text}"\nmsgstr "{target}"\n' for i, (text, target) in enumerate(MESSAGES)))
    document = read_document(path, "po")
    texts = document.texts(Languages("en", "de"))
    report = document.write(lossy(texts), LineWarnings("document"))
    assert "translated 2 of 5 texts; 3 kept unchanged" in report
    for reason in ("1 already translated", "1 without words", "1 because the translation lost"):
        assert reason in report


BREAKS = ["<br>", "<br/><BR />", "</li><li>", "\n", "\t", "\\n", "</p>\n<p>", "<hr/>"]


@pytest.mark.parametrize("between", BREAKS)
def test_a_line_break_ends_a_sentence_and_is_kept(between, tmp_path):
    markers = Markers()
    text = markers.mark_tags(f"<p>The <b>first</b>{between}The second</p>")
    texts = [peel(piece).text for piece in TEXT_BREAK.split(text)[::2]]
    assert list(filter(None, texts)) == ['The <g id="2">first</g>', "The second"]
    assert markers.restore(text) == f"<p>The <b>first</b>{between}The second</p>"


@pytest.mark.parametrize("text", ["C:\\new\\table", "\\textbf{a}", "<option> of it", "a <title>"])
def test_text_that_looks_like_a_break_is_not_one(text):
    assert len(TEXT_BREAK.split(Markers().mark_tags(text))) == 1


PAIRS = {
    "bpt, ept": ('<bpt id="1">&lt;b&gt;</bpt>', '<ept id="1">&lt;/b&gt;</ept>'),
    "bpt, ept by rid": ('<bpt id="1" rid="7"/>', '<ept id="2" rid="7"/>'),
    "bx, ex": ('<bx id="1"/>', '<ex id="2" rid="1"/>'),
    "it": ('<it id="1" pos="open"/>', '<it id="2" pos="close"/>'),
    "codes": ('<ph id="1">&lt;b&gt;</ph>', '<ph id="2">&lt;/b&gt;</ph>'),
    "Angular": ('<x id="START_TAG_SPAN"/>', '<x id="CLOSE_TAG_SPAN"/>'),
    "equivalents": ('<x id="1" equiv-text="&lt;i&gt;"/>', '<x id="2" equiv-text="&lt;/i&gt;"/>'),
    "sc, ec": ('<sc id="1"/>', '<ec startRef="1"/>'),
    "sm, em": ('<sm id="m"/>', '<em startRef="m"/>'),
    "written": ("&lt;b class='x'&gt;", "&lt;/b&gt;"),
}
LINE_BREAKS = [
    '<x id="1" ctype="lb"/>',
    "<ph>&lt;br/&gt;</ph>",
    '<ph id="1" subType="xlf:lb"/>',
    '<x id="1" equiv-text="&lt;br&gt;"/>',
]


def of_xliff(units: str, version: str = "1.2") -> str:
    return f'<xliff version="{version}"><file source-language="en" target-language="de"><body>{units}</body></file></xliff>'


def source_text(inline: str, tmp_path: Path) -> str:
    """The text with markers of an XLIFF source."""
    (tmp_path / "a.xlf").write_text(of_xliff(f'<trans-unit id="1"><source>{inline}</source></trans-unit>'))
    [unit] = read_document(tmp_path / "a.xlf", "xliff").units(Languages("en", "de"))
    return unit.text


@pytest.mark.parametrize("name", PAIRS)
def test_paired_start_and_end_tags_are_translated_as_one_element(name, tmp_path):
    opening, closing = PAIRS[name]
    inline = f"press {opening}the <x id='9'/> button{closing} now"
    text = source_text(inline, tmp_path)
    assert re.sub(r"\d+", "N", text) == 'press <g id="N">the <x id="N"/> button</g> now'
    content = translated(tmp_path / "a.xlf", "xliff")[0].decode()
    target = content.partition("<target")[2]
    assert "BUTTON" in target and [target.count(tag) for tag in ("bpt>", "&lt;/b&gt;")] == [
        inline.count(tag) for tag in ("bpt>", "&lt;/b&gt;")
    ]


@pytest.mark.parametrize("tag", LINE_BREAKS)
def test_an_element_representing_a_break_ends_a_sentence(tag, tmp_path):
    pieces = TEXT_BREAK.split(source_text(f"One line {tag}another", tmp_path))
    assert pieces[::2] == ["One line ", "another"]


def test_a_partly_translated_unit_gets_its_missing_translations(tmp_path):
    cut = '<mrk mtype="seg" mid="1">One.</mrk> <g id="5"><mrk mtype="seg" mid="2">Two.</mrk></g>'
    done = cut.replace("One.", "EINS.").replace("Two.", "")
    locked = '<sdl:seg-defs xmlns:sdl="s"><sdl:seg id="1" locked="true"/><sdl:seg id="2"/></sdl:seg-defs>'
    units = [
        f"<trans-unit id='1'><source>x</source><seg-source>{cut}</seg-source><target>{done}</target></trans-unit>",
        f"<trans-unit id='2'><source>x</source><seg-source>{cut}</seg-source>{locked}</trans-unit>",
    ]
    (tmp_path / "a.xlf").write_text(of_xliff("".join(units)))
    content = translated(tmp_path / "a.xlf", "xliff")[0].decode()
    first, second = re.findall("<target.*?</target>", content)
    assert ">EINS.<" in first and ">TWO.<" in first and ">TWO.<" in second and "O" not in second.replace("TWO", "")
    assert 'conf="Draft"' in content and not TEXT_BREAK.search(content)
    assert "EINS." in translated(tmp_path / "a.xlf", "xliff")[0].decode()


@pytest.mark.parametrize(
    ("format", "document"),
    [
        (
            "xliff",
            of_xliff('<trans-unit id="1"><source><g id="1">One</g></source><target><g id="1"/></target></trans-unit>'),
        ),
        ("xliff", of_xliff('<segment state="initial"><source>One</source><target>One</target></segment>', "2.0")),
        ("tmx", TMX.replace("en-US", "eng")),
        ("tmx", TMX.replace("done", "one").replace('"de-DE"><seg>ERLEDIGT', '"deu"><seg><ph>x</ph>')),
    ],
)
def test_untranslated_units_get_a_translation(format, document, tmp_path):
    (tmp_path / "document").write_text(document)
    assert re.search("ONE|BOLD", translated(tmp_path / "document", format)[0].decode())


def word_field(code: str, result: str) -> str:
    """A Word field as a sequence of runs."""
    parts = [f'<w:fldChar w:fldCharType="{kind}"/>' for kind in ("begin", "separate", "end")]
    inner = (parts[0], f"<w:instrText> {code} </w:instrText>", parts[1], f"<w:t>{result}</w:t>", parts[2])
    return "".join(f"<w:r>{part}</w:r>" for part in inner)


def translated_word(path: Path, content: bytes, name: str = "word/document.xml") -> str:
    path.write_bytes(content)
    return zipfile.ZipFile(io.BytesIO(translated(path, "docx")[0])).read(name).decode()


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("HYPERLINK &quot;https://a.org&quot;", "DOG"),
        ("TOC \\o", "DOG"),
        ("DATE", "dog"),
        ("MERGEFIELD x", "dog"),
        ("REF x", "dog"),
    ],
)
def test_the_text_of_a_field_is_translated_and_its_instruction_is_kept(code, result, tmp_path):
    before, after = '<w:r><w:t xml:space="preserve">see </w:t></w:r>', "<w:r><w:t> now</w:t></w:r>"
    simple = f'<w:fldSimple w:instr=" {code} "><w:r><w:t>dog</w:t></w:r></w:fldSimple>'
    for field in (word_field(code, "dog"), simple):
        content = translated_word(tmp_path / "a.docx", docx(f"<w:p>{before}{field}{after}</w:p>"))
        assert re.findall("<w:t[^>]*>([^<]*)<", content) == ["SEE ", result, " NOW"]
        assert content.count("fldChar") == field.count("fldChar") and content.count("<w:fldSimple") == field.count(
            "<w:fldSimple"
        )


@pytest.mark.parametrize(
    "item", ["tab", "br", 'br w:type="page"', 'br w:type="column"', "cr", 'ptab w:alignment="left"']
)
def test_a_tab_or_break_of_word_ends_a_sentence_and_is_kept(item, tmp_path):
    (tmp_path / "a.docx").write_bytes(
        docx(f"<w:p><w:r><w:rPr><w:b/></w:rPr><w:t>one</w:t><w:{item}/><w:t>two</w:t></w:r></w:p>")
    )
    document = read_document(tmp_path / "a.docx", "docx")
    assert document.texts(Languages("en", "de")) == ["one", "two"]
    content = translated_word(tmp_path / "a.docx", (tmp_path / "a.docx").read_bytes())
    assert re.search(
        rf"ONE</w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:{item}/></w:r><w:r><w:rPr><w:b/></w:rPr><w:t [^>]*>TWO", content
    )


def test_a_superscript_number_of_word_is_kept(tmp_path):
    raised = '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t xml:space="preserve">1</w:t></w:r>'
    content = docx(f"<w:p><w:r><w:t>one</w:t></w:r>{raised}<w:r><w:t> two</w:t></w:r></w:p>")
    assert f">ONE</w:t></w:r>{raised}<w:r>" in translated_word(tmp_path / "a.docx", content)


def test_document_parts_of_word_are_found_by_relationships_even_in_strict_documents(tmp_path):
    kinds = {
        "": [("officeDocument", "/word/document2.xml")],
        "word/document2": [("footer", "foot.xml"), ("styles", "st.xml")],
    }
    output = io.BytesIO()
    strict = "http://purl.oclc.org/ooxml/wordprocessingml/main"
    texts = {
        "word/document2.xml": "<w:document><w:body><w:p><w:r><w:t>one</w:t></w:r></w:p></w:body></w:document>",
        "word/foot.xml": "<w:ftr><w:p><w:r><w:t>two</w:t></w:r></w:p></w:ftr>",
        "word/st.xml": '<w:styles><w:lang w:val="en-US" w:eastAsia="ja-JP"/></w:styles>',
    }
    with zipfile.ZipFile(output, "w") as archive:
        for source, relations in kinds.items():
            rows = "".join(f'<Relationship Type="http://x/{kind}" Target="{target}"/>' for kind, target in relations)
            folder, _, name = source.rpartition("/")
            rels = f"{folder}/_rels/{name}.xml.rels" if source else "_rels/.rels"
            archive.writestr(rels, f"<Relationships>{rows}</Relationships>")
        for name, text in texts.items():
            archive.writestr(name, text.replace(">", f' xmlns:w="{strict}">', 1))
    contents = [translated_word(tmp_path / "a.docx", output.getvalue(), name) for name in texts]
    assert all(strict in content for content in contents)
    assert "ONE" in contents[0] and "TWO" in contents[1] and 'w:val="de" w:eastAsia="ja-JP"' in contents[2]


LONG_LINES = {
    "a word": 160_000 * "a",
    "marks on a letter": "a" + 160_000 * "\u0301",
    "an unclosed style": "{\\" + 100_000 * "a",
    "quotation marks in an unclosed tag": "<a " + 100 * '"',
    "unclosed comments": 20_000 * "<!-- a ",
    "spaces": 160_000 * " " + "a",
    "nested tags": 9000 * "<b>dog " + 9000 * "</b>",
    "messages": 3000 * "{a, plural, other {dog}} ",
    "a number": 6000 * "7" + " dogs",
    "a marker with a long number": '{{ <g id="' + 6000 * "7" + '"> }} dogs',
}


@pytest.mark.parametrize("name", LONG_LINES)
@pytest.mark.parametrize("format", ["srt", "json", "docx"])
def test_a_long_line_is_translated_whatever_it_contains(name, format, tmp_path):
    """Steps whose work grows with the square of the length would take many minutes here."""
    text, path = LONG_LINES[name], tmp_path / f"a.{format}"
    contents = {
        "srt": f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n".encode(),
        "json": json.dumps({"a": text}).encode(),
        "docx": docx(f"<w:p><w:r><w:t>{escape(text)}</w:t></w:r></w:p>"),
    }
    path.write_bytes(contents[format])
    content, _ = translated(path, format, lambda texts: [Translation([Candidate(t, [], 0, 0)]) for t in texts])
    if format == "docx":
        content = zipfile.ZipFile(io.BytesIO(content)).read("word/document.xml")
    assert re.sub(rb"\W", b"", content).count(b"a") >= text.count("a")


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("json", json.dumps([f"a dog {number}" for number in range(20_000)], indent=1)),
        ("po", 'msgid "a dog"\nmsgstr ""\n' + 200_000 * "\n"),
        ("docx", docx("<w:p>" + 40_000 * "<w:r><w:t>a dog </w:t></w:r>" + "</w:p>")),
        (
            "xliff",
            '<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de"><file id="f"><unit '
            f'id="u"><originalData>{"".join(f"""<data id="d{i}">%s</data>""" for i in range(4000))}</originalData><segment>'
            f'<source>{"".join(f"""<ph id="{i}" dataRef="d{i}"/> dog """ for i in range(4000))}</source></segment></unit>'
            "</file></xliff>",
        ),
    ],
)
def test_a_document_with_many_texts_takes_no_longer_than_its_parts(format, content, tmp_path):
    path = tmp_path / f"a.{format}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert translated(path, format)[0].count(b"DOG") or format == "docx"


def test_deeply_nested_json_is_an_error(tmp_path):
    path = tmp_path / "a.json"
    for depth in (250, 100_000):
        path.write_text(depth * "[" + '"a dog"' + depth * "]")
        with pytest.raises(InputError, match="more than 200 levels deep"):
            read_document(path, "json")


def archive(**parts: bytes) -> bytes:
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(f"word/{name}.xml", content)
    return output.getvalue()


def _wide(size: int) -> bytes:
    return b"<a>" + b" " * size + b"</a>"


def test_word_documents_may_not_expand_too_far(tmp_path):
    """The unpacked bytes are counted, over all parts with text, whatever the archive says."""
    path, text = tmp_path / "a.docx", in_word("document", f"<w:body>{BODY}</w:body>").encode()
    for bomb in ({"header1": _wide(8 << 20)}, {f"header{i}": _wide(1 << 20) for i in range(9)}):
        path.write_bytes(archive(document=text, **bomb))
        with pytest.raises(ArtefactError, match="the limit is 100 times the size of the file"):
            read_document(path, "docx")
    size = len(_wide(8 << 20)).to_bytes(4, "little")
    path.write_bytes(archive(document=text, header1=_wide(8 << 20)).replace(size, (100).to_bytes(4, "little")))
    with pytest.raises(InputError, match="not valid DOCX"):
        read_document(path, "docx")


def test_parts_of_word_documents_may_not_overlap(tmp_path):
    path, content = tmp_path / "a.docx", archive(document=b"<a/>", **{f"a{i}": b"<a/>" for i in range(99)})
    directory = content.index(b"PK\1\2")
    entry = zipfile.ZipFile(io.BytesIO(content)).infolist()[-1].header_offset
    rows = content[directory:].split(b"PK\1\2")[1:]
    size = len(content).to_bytes(4, "little")
    rows = [row[:16] + size + row[20:38] + entry.to_bytes(4, "little") + row[42:] for row in rows[:-1]] + rows[-1:]
    path.write_bytes(content[:directory] + b"".join(b"PK\1\2" + row for row in rows))
    with pytest.raises((ArtefactError, InputError), match=r"overlap|not valid DOCX"):
        read_document(path, "docx")


def test_parts_of_word_documents_without_text_are_copied_without_unpacking_them(tmp_path):
    path, content = tmp_path / "a.docx", docx("<w:p><w:r><w:t>a dog</w:t></w:r></w:p>")
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        info = old.getinfo("word/media/image1.png")
    start = info.header_offset + 30 + len(info.filename)
    packed = b"\xff" * info.compress_size  # bytes that cannot be unpacked
    path.write_bytes(content[:start] + packed + content[start + info.compress_size :])
    written = translated(path, "docx")[0]
    with zipfile.ZipFile(io.BytesIO(written)) as new:
        assert "A DOG" in new.read("word/document.xml").decode() and len(new.namelist()) == 3
        copied = new.getinfo("word/media/image1.png")
    start = copied.header_offset + 30 + len(copied.filename)
    assert written[start : start + copied.compress_size] == packed and copied.CRC == info.CRC
