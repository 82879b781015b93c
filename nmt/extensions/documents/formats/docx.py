"""Office Open XML documents (.docx): the paragraphs of each part with text, in runs of formatting.

The texts of a paragraph that look alike are one text. Its most frequent formatting is that of the text outside of markers;
other formats, links and insertions are pairs; images, fields, notes and bookmarks are single markers.
"""

import copy
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from lxml import etree

from nmt import register
from nmt.errors import ArtefactError
from nmt.extensions.documents.document import Unit, UnitDocument, UnitFormat, damaged
from nmt.extensions.documents.formats.options import DocumentOptions
from nmt.extensions.documents.markers import CLOSING, Markers
from nmt.extensions.documents.safe_xml import XML_SPACE, XmlFile
from nmt.formats.base import Languages

WORD_XML: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
TEXT_PART: Final = re.compile(r"word/(document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml")
MAIN_PART: Final = "word/document.xml"
MAX_UNPACKED_BYTES: Final = 512 << 20  # of a document with images
MAX_PART_BYTES: Final = 64 << 20  # of a part that is held as a tree
MAX_PARTS: Final = 20_000


def _word_names(names: str) -> set[str]:
    """The names of elements of Word."""
    return {f"{WORD_XML}{name}" for name in names.split()}


CONTAINERS: Final = _word_names("hyperlink ins moveTo smartTag customXml bdo dir")
CONTENT_CONTROL: Final = f"{WORD_XML}sdt"  # a content control, such as a field of a form
CONTENT_OF_CONTROL: Final = f"{WORD_XML}sdtContent"
# Properties of controls whose text is a choice, or stands elsewhere in the document.
FIXED_CONTROLS: Final = {
    *_word_names("dropDownList comboBox date picture citation bibliography equation dataBinding"),
    "{http://schemas.microsoft.com/office/word/2010/wordml}checkbox",
}
DROPPED: Final = _word_names("proofErr lastRenderedPageBreak softHyphen")  # of the source's text
PROOFING: Final = _word_names("lang noProof")  # properties of a run that do not show
UNFINISHED_TAG: Final = re.compile(r"<[^<>]*$")  # which the next run may end


class RunFormat(NamedTuple):
    """The properties of runs, `w:rPr` or None. as_text: what equal ones have in common"""

    properties: Any
    as_text: str


class Item(NamedTuple):
    """The original of a marker: an item of a run that is no text, which is moved with a run of its own."""

    element: Any
    format: RunFormat


class Container(NamedTuple):
    """The original of a marker: an element around runs, and the formatting of its text outside of markers."""

    element: Any
    base: RunFormat


class DocxDocument(UnitDocument):
    """A document of Word. Raises InputError if it is damaged, ArtefactError if it is hostile."""

    def __init__(self, content: bytes, place: str) -> None:
        self._content, self._place = content, place
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                self._parts = dict(self._read_parts(archive))
                if (name := archive.testzip()) is not None:
                    raise ValueError(f"its part {name} is damaged")
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
            raise damaged(place, "DOCX", error) from None  # RuntimeError: it is encrypted
        if MAIN_PART not in self._parts:
            raise damaged(place, "DOCX", f"it has no {MAIN_PART}")
        if self._parts[MAIN_PART].root.tag != f"{WORD_XML}document":
            raise damaged(place, "DOCX", "it is of another kind than Word writes by default, such as Strict Open XML")

    def _read_parts(self, archive: zipfile.ZipFile) -> Iterator[tuple[str, XmlFile]]:
        infos = archive.infolist()
        size = sum(info.file_size for info in infos)
        if size > MAX_UNPACKED_BYTES or len(infos) > MAX_PARTS:
            raise ArtefactError(
                f"{self._place}: unpacks to {size:,} bytes in {len(infos):,} parts; at most {MAX_UNPACKED_BYTES:,} in "
                f"{MAX_PARTS:,} are read"
            )
        if len({info.filename for info in infos}) < len(infos):
            raise ArtefactError(f"{self._place}: two of its parts have one name")
        for info in infos:
            if TEXT_PART.fullmatch(info.filename):
                part = f"{self._place}/{info.filename}"
                if info.file_size > MAX_PART_BYTES:
                    raise ArtefactError(f"{part}: {info.file_size:,} bytes; at most {MAX_PART_BYTES:,}")
                yield info.filename, XmlFile(archive.read(info), "DOCX", part)

    def units(self, languages: Languages) -> list[Unit]:
        """Every paragraph with text, since a document holds one language."""
        units, number = [], 0
        for file in self._parts.values():
            for paragraph in file.root.iter(f"{WORD_XML}p"):
                number += 1
                markers = Markers()
                base = _base_format(paragraph)
                text = _text(paragraph, base, markers)
                if text:
                    write = partial(self._write, file, paragraph, base, markers)
                    units.append(Unit(f"paragraph {number}", text, write, markers))
        return units

    def _write(self, file: XmlFile, paragraph: Any, base: RunFormat, markers: Markers, translation: str) -> None:
        for child in list(paragraph):
            if child.tag != f"{WORD_XML}pPr":
                paragraph.remove(child)
        _append(paragraph, base, translation, markers)
        file.changed = True

    def content(self) -> bytes:
        """The document: the other parts are copied as they are."""
        if not any(file.changed for file in self._parts.values()):
            return self._content
        output = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(self._content)) as old, zipfile.ZipFile(output, "w") as new:
            for info in old.infolist():
                file = self._parts.get(info.filename)
                new.writestr(info, old.read(info) if file is None else file.content())
        return output.getvalue()


def _format_of(run: Any) -> RunFormat:
    properties = run.find(f"{WORD_XML}rPr")
    if properties is None:
        return RunFormat(None, "")
    shown = [etree.tostring(item, with_tail=False).decode() for item in properties if item.tag not in PROOFING]
    return RunFormat(properties, "".join(sorted(shown)))


def _base_format(parent: Any) -> RunFormat:
    """The format of most characters of the runs in an element, but not in inner containers."""
    formats: dict[str, RunFormat] = {}
    counts: Counter[str] = Counter()
    for run in parent.iterchildren(f"{WORD_XML}r"):
        format = _format_of(run)
        formats.setdefault(format.as_text, format)
        counts[format.as_text] += sum(len(text.text or "") for text in run.iterchildren(f"{WORD_XML}t"))
    return formats[counts.most_common(1)[0][0]] if counts else RunFormat(None, "")


def _text(parent: Any, base: RunFormat, markers: Markers) -> str:
    """The content of a paragraph or container as a text with markers."""
    pieces: list[tuple[RunFormat, str]] = []
    field_depth = 0
    for child in parent:
        if not field_depth and (content := _content(child)) is not None:
            inner_base = _base_format(content)
            marker = markers.opening(Container(child, inner_base))
            pieces.append((base, marker + _text(content, inner_base, markers) + CLOSING))
        elif child.tag != f"{WORD_XML}r":
            if child.tag not in DROPPED and child.tag != f"{WORD_XML}pPr":
                pieces.append((base, markers.alone(child)))
        else:
            format = _format_of(child)
            for item in child:
                # A field that began in a paragraph before may end here.
                field_depth = max(0, field_depth + _field_step(item))
                piece = _run_item(child, item, field_depth > 0, markers)
                pieces += [(format, piece)] if piece else []
    return _joined(pieces, base, markers)


def _content(element: Any) -> Any:
    """The element that directly has the runs of a container; None for what is no container of text."""
    if element.tag != CONTENT_CONTROL:
        return element if element.tag in CONTAINERS else None
    is_fixed = any(item.tag in FIXED_CONTROLS for item in element.iterfind(f"{WORD_XML}sdtPr/*"))
    return None if is_fixed else element.find(CONTENT_OF_CONTROL)


def _add_container(parent: Any, original: Any) -> Any:
    """A copy of a container without its content, at the end of an element: the element that the content belongs into."""
    added = etree.SubElement(parent, original.tag, original.attrib)
    if original.tag != CONTENT_CONTROL:
        return added
    added.extend(copy.deepcopy(item) for item in original if item.tag != CONTENT_OF_CONTROL)
    return etree.SubElement(added, CONTENT_OF_CONTROL)


def _field_step(item: Any) -> int:
    """What an item of a run adds to the number of open fields, whose instructions and results are kept as they are."""
    if item.tag != f"{WORD_XML}fldChar":
        return 0
    return {"begin": 1, "end": -1}.get(item.get(f"{WORD_XML}fldCharType"), 0)


def _run_item(run: Any, item: Any, in_field: bool, markers: Markers) -> str:
    """An item of a run: its text, a line break, or a marker for a run of this item alone."""
    if item.tag == f"{WORD_XML}rPr" or item.tag in DROPPED:
        return ""
    if not in_field:
        if item.tag == f"{WORD_XML}t":
            text = markers.mark_tags((item.text or "").replace("\n", " "))
            return UNFINISHED_TAG.sub(lambda found: markers.alone(found[0]), text)
        if item.tag == f"{WORD_XML}br" and not item.attrib:
            return "\n"
        if item.tag == f"{WORD_XML}noBreakHyphen":
            return "\N{NON-BREAKING HYPHEN}"
    return markers.alone(Item(item, _format_of(run)))


def _joined(pieces: list[tuple[RunFormat, str]], base: RunFormat, markers: Markers) -> str:
    """Pieces of one format as one text; those of another one than the base in a pair of markers."""
    merged: list[tuple[RunFormat, list[str]]] = []
    for format, piece in pieces:
        is_blank = not piece.strip() or piece.startswith("<x")  # its formatting does not show, or is its own
        if merged and (is_blank or merged[-1][0].as_text == format.as_text):
            merged[-1][1].append(piece)
        else:
            merged.append((base if is_blank else format, [piece]))
    texts = [(format, "".join(parts)) for format, parts in merged]
    return "".join(
        text if format.as_text == base.as_text else _in_pairs(text, format, markers) for format, text in texts
    )


def _in_pairs(piece: str, format: RunFormat, markers: Markers) -> str:
    """A pair of markers around each line of a text that has lines."""
    return "\n".join(markers.opening(format) + line + CLOSING if line else "" for line in piece.split("\n"))


def _add_run(parent: Any, format: RunFormat) -> Any:
    """A new run at the end of an element, with a copy of some properties."""
    run = etree.SubElement(parent, f"{WORD_XML}r")
    if format.properties is not None:
        run.append(copy.deepcopy(format.properties))
    return run


def _append(paragraph: Any, base: RunFormat, text: str, markers: Markers) -> None:
    """Append a text with markers to a paragraph, as runs."""
    places: list[tuple[Any, RunFormat]] = [(paragraph, base)]
    for kind, part in markers.restored(text):
        parent, format = places[-1]
        if kind == "text":
            _append_runs(parent, format, part)
        elif kind == "close":
            places.pop()
        elif isinstance(part, Container):
            places.append((_add_container(parent, part.element), part.base))
        elif isinstance(part, RunFormat):
            places.append((parent, part))
        elif isinstance(part, Item):
            _add_run(parent, part.format).append(part.element)
        else:
            parent.append(part)


def _append_runs(parent: Any, format: RunFormat, text: str) -> None:
    """Append a run of text; a line break for each LF."""
    if not text:
        return
    run = _add_run(parent, format)
    for number, line in enumerate(text.split("\n")):
        if number:
            etree.SubElement(run, f"{WORD_XML}br")
        if line:
            written = etree.SubElement(run, f"{WORD_XML}t")
            written.text = line
            written.set(XML_SPACE, "preserve")


@register("format", "docx", DocumentOptions)
class DocxFormat(UnitFormat):
    """Documents of Word: the paragraphs of each part with text."""

    document = DocxDocument
