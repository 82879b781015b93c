"""Translate documents, and check that no text, tag or structure is lost and that other programs can open the results.

    python benchmarks/documents.py [FOLDER ...] [--model MODEL]

Reads the documents in the given folders, such as unpacked source distributions with sample files, and 40 generated structures
in each of ten formats. Without a model the translation is the text in capitals, which shows untranslated texts; a model shows
losses from its search and from tags placed by attention. Prints one row per format: documents, texts, translated texts, texts
kept by reason, and documents with a loss, which are named. A document that `nmt` rejects with a message counts as refused.
"""

import argparse
import contextlib
import csv
import io
import json
import re
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from nmt.cli.tables import table_text
from nmt.errors import UserError
from nmt.extensions.documents.document import UnitDocument
from nmt.extensions.documents.markers import MARKER, from_xml, to_xml
from nmt.extensions.texts.placeholders import PLACEHOLDER
from nmt.formats.base import Languages, format_of, open_format
from nmt.log import log
from nmt.translate.line_warnings import LineWarnings
from nmt.translate.results import Candidate, Translation

LANGUAGES: Final = Languages("en", "de")
# b, /b: a pair; x: a single tag; br: a break; tab; ph: a placeholder.
SENTENCES: Final = ["The girl sings.", "The boy dances.", "The old dog sees a green door."]
TEMPLATES: Final = [
    "A", "A B", "A[br]B", "A[br][br]B", "A[tab]C", "[br]A", "A[br]", "[tab]A[tab]", "[b]A[/b]", "[b]A[/b] B",
    "A [b]B[/b]", "[b]A[br]B[/b]", "A [b]C[br]B[/b] A", "[x]A", "A[x]", "A [x] B", "A[x][x]B", "[b][x][/b]A", "[b][b]A[/b][/b]",
    "The [b]old[/b] dog.", "The [b]old [b]green[/b][/b] dog.", "The[x] dog.", "The [x]dog[x] sings.", "The [ph] sings.",
    "[ph] sings.", "The girl sees [ph].", "[ph][ph]", "[ph]: A", "The [b][ph][/b] sings.", "A[br][ph]", "12", "12[tab]A",
    "A (B)", "A  B", " A ", "[b]A[/b][br][b]B[/b]", "A[br]- B", "1. A[br]2. B",
    "The [b]girl[/b] and the [b]boy[/b] sing.", "C[br]12[br]C",
]  # fmt: skip
CODES: Final = {
    "po": {"b": "<b>", "/b": "</b>", "x": '<img src=\\"a\\"/>', "br": "\\n", "tab": "\\t", "ph": "%(name)s"},
    "xliff": {
        "b": '<g id="1">',
        "/b": "</g>",
        "x": '<x id="2"/>',
        "br": '<x id="3" ctype="lb"/>',
        "tab": "\t",
        "ph": "%s",
    },
    "tmx": {
        "b": '<bpt i="1"/>',
        "/b": '<ept i="1"/>',
        "x": "<ph/>",
        "br": '<ph type="lb"/>',
        "tab": "\t",
        "ph": "<ph>%s</ph>",
    },
    "srt": {"b": "{\\i1}", "/b": "{\\i0}", "x": "{\\an8}", "br": "\n", "tab": "\t", "ph": "{name}"},
    "vtt": {"b": "<i>", "/b": "</i>", "x": "<00:01.500>", "br": "\n", "tab": "\t", "ph": "{name}"},
    "html": {"b": "<b>", "/b": "</b>", "x": '<img src="a">', "br": "<br>", "tab": "</p><p>", "ph": "{{ name }}"},
    "markdown": {"b": "**", "/b": "**", "x": "![](a.png)", "br": "\n\n- ", "tab": "\n\n# ", "ph": "`code`"},
    "json": {"b": "<b>", "/b": "</b>", "x": "<br/>", "br": "\\n", "tab": "\\t", "ph": "{{name}}"},
    "csv": {"b": "<b>", "/b": "</b>", "x": "<br/>", "br": "\n", "tab": "\t", "ph": "{name}"},
    "docx": {
        "b": '</w:t></w:r><w:hyperlink w:anchor="a"><w:r><w:t xml:space="preserve">',
        "/b": '</w:t></w:r></w:hyperlink><w:r><w:t xml:space="preserve">',
        "x": '</w:t></w:r><w:bookmarkEnd w:id="1"/><w:r><w:t xml:space="preserve">',
        "br": '</w:t><w:br/><w:t xml:space="preserve">',
        "tab": '</w:t><w:tab/><w:t xml:space="preserve">',
        "ph": '</w:t></w:r><w:fldSimple w:instr="DATE"><w:r><w:t>1</w:t></w:r></w:fldSimple><w:r><w:t xml:space="preserve">',
    },
}
ENDINGS: Final = {"xliff": "xlf", "markdown": "md"}
WRAPPERS: Final = {
    "po": 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "{}"\nmsgstr ""\n',
    "xliff": '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en" '
    'target-language="de" original="a" datatype="x"><body><trans-unit id="1" xml:space="preserve"><source>{}</source>'
    "</trans-unit></body></file></xliff>",
    "tmx": '<tmx version="1.4"><header srclang="en" creationtool="x" creationtoolversion="1" segtype="block" datatype="x" '
    'o-tmf="x" adminlang="en"/><body><tu><tuv xml:lang="en"><seg xml:space="preserve">{}</seg></tuv></tu></body></tmx>',
    "srt": "1\n00:00:01,000 --> 00:00:02,000\n{}\n",
    "vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\n{}\n",
    "html": "<!DOCTYPE html>\n<html><head><title>The old dog</title></head><body><p>{}</p></body></html>\n",
    "markdown": "# The old dog\n\n{}\n",
    "json": '{"key": {"inner": "{}"}}\n',
    "csv": 'id,en,de\n1,"{}",\n',
    "docx": '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r>'
    '<w:t xml:space="preserve">{}</w:t></w:r></w:p></w:body></w:document>',
}
BILINGUAL: Final = {"po", "xliff", "tmx", "csv"}  # their texts are kept, with translations next to them
Translate = Callable[[Sequence[str]], list[Translation]]


def generated(folder: Path) -> Iterator[Path]:
    """Write a document for each template and format."""
    for format, codes in CODES.items():
        for number, template in enumerate(TEMPLATES):
            text = re.sub("[ABC]", lambda found: SENTENCES["ABC".index(found[0])], template)
            text = re.sub(r"\[([^\]]*)\]", lambda found, codes=codes: codes[found[1]], text)
            path = folder / f"{number}.{ENDINGS.get(format, format)}"
            content = WRAPPERS[format].replace("{}", text).encode()
            if format == "docx":
                from docx import Document

                buffer, output = io.BytesIO(), io.BytesIO()
                Document().save(buffer)
                with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(output, "w") as new:
                    for info in old.infolist():
                        new.writestr(info, content if info.filename == "word/document.xml" else old.read(info))
                content = output.getvalue()
            path.write_bytes(content)
            yield path


def capitals(texts: Sequence[str]) -> list[Translation]:
    """Texts in capitals, with tags and placeholders kept."""

    def upper(text: str) -> str:
        kept = [found[0] for found in PLACEHOLDER.finditer(text)]
        between = PLACEHOLDER.sub("\0", text).split("\0")
        return "".join(words.upper() + placeholder for words, placeholder in zip_longest(between, kept, fillvalue=""))

    made = [
        "".join(part if i % 2 else upper(part) for i, part in enumerate(MARKER.split(from_xml(text)))) for text in texts
    ]
    return [Translation([Candidate(to_xml(text), [], 0.0, 0.0)]) for text in made]


def read(path: Path, format: str) -> UnitDocument:
    options: Any = SimpleNamespace(retranslate=True, columns=())
    document: Any = open_format(format, options).read(path)
    return document


def losses(path: Path, format: str, translate: Translate, counts: Counter[str]) -> list[str]:
    """The losses of a translated document. counts: counters of texts, updated in place"""
    before = [unit.text for unit in read(path, format).units(LANGUAGES)]
    document = read(path, format)
    texts = document.texts(LANGUAGES)
    report = str(document.write(translate(texts), LineWarnings(path.name)))
    counts["texts"] += len(before)
    for count, reason in re.findall(r"([\d,]+) ([a-z][^,;]*)", report.partition("unchanged: ")[2]):
        counts[reason] += int(count.replace(",", ""))
    output = path.with_name(f"{path.stem}.out{path.suffix}")
    output.write_bytes(document.content())
    found = []
    try:
        after = [unit.text for unit in read(output, format).units(LANGUAGES)]
        foreign(output, format)
    except Exception as error:
        return [f"does not open again: {type(error).__name__}: {error}"]
    if len(before) != len(after):
        found.append(f"{len(before)} texts became {len(after)}")
    for old, new in zip(before, after, strict=False):
        if sorted(MARKER.findall(old)) != sorted(MARKER.findall(new)):
            found.append(f"tags of '{old}' became those of '{new}'")
        same = " ".join(old.upper().split()) == " ".join(new.upper().split())
        if translate is capitals and format not in BILINGUAL and not same:
            found.append(f"'{old}' became '{new}'")
    if structure(path, format) != structure(output, format):
        found.append("another structure")
    return found


def structure(path: Path, format: str) -> object:
    """What translation must not change: names and numbers of elements or entries."""
    content = path.read_bytes()
    if format == "docx":
        with zipfile.ZipFile(path) as archive:
            parts = [archive.read(name) for name in archive.namelist() if re.fullmatch(r"word/\w+\.xml", name)]
            pattern = rb"<w:(tab|br|cr|p|tbl|tc|hyperlink|fldChar|drawing|sdt|footnoteReference)\b"
            return archive.namelist(), Counter(re.findall(pattern, b"".join(parts)))
    if format in ("xliff", "tmx"):
        return Counter(re.findall(rb"<(trans-unit|segment|source|tu|file|note|prop)\b", content))
    if format == "srt":
        return re.findall(rb"[^\n]*-->[^\n]*", content)
    if format == "html":
        return re.findall(rb"</?\w+", content)
    if format == "csv":
        return [row[:-1] for row in csv.reader(content.decode().splitlines(keepends=True))]
    # Without the header, which is added to a file that has none.
    return len(re.findall(rb'^msgid (?!""\s*msgstr)', content, re.MULTILINE)) if format == "po" else None


def foreign(path: Path, format: str) -> None:
    """Open a document with another program's library."""
    if format == "docx":
        from docx import Document

        [paragraph.text for paragraph in Document(str(path)).paragraphs]
    elif format == "json":
        json.loads(path.read_bytes())
    elif format in ("po", "xliff", "tmx"):
        from translate.storage import factory, xliff2

        is_second = format == "xliff" and b'version="2' in path.read_bytes()
        store = xliff2.Xliff2File.parsefile(str(path)) if is_second else factory.getobject(str(path))
        [(str(unit.source), str(unit.target)) for unit in store.units]


def of_model(model: str) -> Translate:
    """The translation of a document by a model, as in `nmt translate`."""
    from dataclasses import replace

    from nmt.cli.translate import TranslateOptions
    from nmt.extensions.documents.document import UnitFormat
    from nmt.options import Part
    from nmt.translate.requests import Request
    from nmt.translators import open_translator

    options = replace(TranslateOptions(model=(model,), threads=1), **UnitFormat.settings)
    translator = open_translator([model], options, Part("decoder", "beam"))
    return lambda texts: translator.translate(list(map(Request, texts)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--model")
    options = parser.parse_args()
    # A script next to this one would hide the package `translate`, which reads PO, XLIFF and TMX.
    sys.path = [path for path in sys.path if Path(path).resolve() != Path(__file__).resolve().parent]
    translate = of_model(options.model) if options.model else capitals
    log.quiet = True
    rows: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        paths = list(generated(folder))
        given = [path for named in options.folders for path in sorted(named.rglob("*"))]
        for number, path in enumerate(given):
            if path.suffix != ".gz" and format_of([path.name]) in CODES and path.is_file() and not path.is_symlink():
                paths.append(folder / f"{number}-{path.name}")
                paths[-1].write_bytes(path.read_bytes())
        for path in paths:
            format = format_of([path.name])
            counts = rows.setdefault(format, Counter())
            try:
                with contextlib.redirect_stderr(io.StringIO()):
                    found = losses(path, format, translate, counts)
            except UserError as error:
                counts["refused"] += 1
                print(f"{path.name}: rejected: {error}", file=sys.stderr)
                continue
            counts["documents"] += 1
            counts["with a loss"] += bool(found)
            for loss in found[:3]:
                print(f"{path.name}: {loss[:300]}", file=sys.stderr)
    first = ["documents", "refused", "texts", "with a loss"]
    others = sorted({reason for counts in rows.values() for reason in counts} - set(first))
    keys = [*first, *others]
    table = [["format", *keys], *([name, *(f"{counts[key]:,}" for key in keys)] for name, counts in rows.items())]
    print(table_text(table, range(1, len(table[0]))))


if __name__ == "__main__":
    main()
