"""Word documents (.docx, Office Open XML): translates the paragraphs of every part that has text.

Adjacent runs of a paragraph with the same formatting are joined. Text in the most frequent formatting has no markers. Other
formatting, links and insertions become pairs; images, notes and bookmarks become single markers; tabs and line breaks become
breaks. A field becomes a single word, which keeps the value that Microsoft Word computed, unless it contains text, as a link or
an entry of a table of contents does.
"""

import copy
import io
import posixpath
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple

from lxml import etree

from nmt import register
from nmt.errors import ArtefactError
from nmt.extensions.documents.document import Unit, UnitDocument, UnitFormat, damaged, is_language
from nmt.extensions.documents.formats.options import DocumentOptions
from nmt.extensions.documents.language_codes import two_letter_code
from nmt.extensions.documents.markers import CLOSING, MARKER, TEXT_BREAK, Markers, Tag, TagPair, written_tags
from nmt.extensions.documents.safe_xml import XML_SPACE, XmlFile
from nmt.formats.base import Languages
from nmt.log import log
from nmt.storages.streams import READ_BYTES

WORD_XML: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
STRICT, USUAL = (
    b"http://purl.oclc.org/ooxml/wordprocessingml/main",
    WORD_XML[1:-1].encode(),
)  # Strict Open XML has its own namespace
TEXT_PART: Final = re.compile(r"word/(document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml")
MAIN_PART: Final = "word/document.xml"
MAIN_RELATION: Final = "officeDocument"
TEXT_RELATIONS: Final = {"header", "footer", "footnotes", "endnotes", "comments"}
LANGUAGE_RELATIONS: Final = {"styles", "settings"}  # parts that declare the language of the document
DRAWN_RELATIONS: Final = {"chart", "diagramData"}  # parts with text that is not translated
# Limits for the parts that are read, which are held in memory as trees. Other parts, such as images, are not unpacked.
MAX_UNPACKED_BYTES: Final = 64 << 20
FREE_PART_BYTES: Final = 4 << 20  # a document of any size may unpack to this
MAX_PART_EXPANSION: Final = 100  # further bytes per byte of the file; in real documents, text shrinks 5 to 50 times
LOCAL_HEADER: Final = struct.Struct("<26xHH")  # its last fields are the lengths of the name and of the extra field
HAS_DESCRIPTOR: Final = 8  # flag of a part whose sizes follow its content
MAX_PARTS: Final = 20_000
MAX_NESTED_FIELDS: Final = 20  # maximum nesting depth of fields whose results are translated
TEXT_FIELDS: Final = {"HYPERLINK", "TOC", "TOA", "INDEX"}  # other fields have computed results instead of text
UNSEEN_FIELDS: Final = {"XE", "TC", "TA", "RD", "SET", "ASK"}
# The attribute of `w:lang` that declares a language, for languages that do not use `val`.
LANGUAGE_ATTRIBUTES: Final = dict.fromkeys(("zh", "ja", "ko"), "eastAsia") | dict.fromkeys(
    ("ar", "fa", "he", "ur"), "bidi"
)


def _word_names(names: str) -> set[str]:
    """Names of elements in the namespace of Word."""
    return {f"{WORD_XML}{name}" for name in names.split()}


CONTAINERS: Final = _word_names("hyperlink ins moveTo smartTag customXml bdo dir")
CONTENT_CONTROL: Final = f"{WORD_XML}sdt"  # a content control, such as a form field
CONTENT_OF_CONTROL: Final = f"{WORD_XML}sdtContent"
# Properties of controls whose text is a choice, or a copy of text elsewhere in the document.
FIXED_CONTROLS: Final = {
    *_word_names("dropDownList comboBox date picture citation bibliography equation dataBinding"),
    "{http://schemas.microsoft.com/office/word/2010/wordml}checkbox",
}
DROPPED: Final = _word_names("proofErr lastRenderedPageBreak softHyphen")  # elements that fit only the source text
BREAKS: Final = _word_names("tab br cr ptab")
PROOFING: Final = _word_names("lang noProof")  # invisible properties of a run


class RunFormat(NamedTuple):
    """The properties of a run, `w:rPr` or None. as_text: a string that is equal for equal formatting"""

    properties: Any
    as_text: str


class Item(NamedTuple):
    """The original of a marker: an item, other than text, in a run. It is written back as a separate run."""

    element: Any
    format: RunFormat


class Container(NamedTuple):
    """The original of a marker: an element around runs. base: formatting of its text outside markers"""

    element: Any
    base: RunFormat


class MarkedText(NamedTuple):
    """A part of a paragraph that already has markers, because it is a container."""

    text: str


RunPiece = str | Tag | MarkedText  # a str is plain text from the document


class DocxDocument(UnitDocument):
    """A Word document. Raises InputError if it is damaged, ArtefactError if it is hostile."""

    def __init__(self, content: bytes, place: str) -> None:
        self._content, self._place, self._unpacked = content, place, 0
        self._parts: dict[str, XmlFile] = {}  # parts that are held as trees
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                self._check(archive)
                self._text_names = self._read_parts(archive)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
            raise damaged(place, "DOCX", error) from None  # RuntimeError: the file is encrypted

    def _check(self, archive: zipfile.ZipFile) -> None:
        infos = archive.infolist()
        if len(infos) > MAX_PARTS:
            raise ArtefactError(f"{self._place}: the document has {len(infos):,} parts; the limit is {MAX_PARTS:,}")
        if sum(info.compress_size for info in infos) > len(self._content):
            raise ArtefactError(f"{self._place}: parts of the document overlap")
        for info in infos:
            if _content_start(self._content, info) + info.compress_size > len(self._content):
                raise ValueError(f"the part {info.filename} is damaged")
        if len({info.filename for info in infos}) < len(infos):
            raise ArtefactError(f"{self._place}: two parts of the document have the same name")

    def _read_parts(self, archive: zipfile.ZipFile) -> list[str]:
        """Read the parts that have text or declare the language. Returns the names of those with text, the main part first."""
        names = set(archive.namelist())
        main = next((name for kind, name in self._relations(archive, "") if kind == MAIN_RELATION), MAIN_PART)
        if main not in names:
            raise ValueError(f"{MAIN_PART} is missing")
        related = list(self._relations(archive, main))
        texts = [main, *(name for kind, name in related if kind in TEXT_RELATIONS), *filter(TEXT_PART.fullmatch, names)]
        texts = [name for name in dict.fromkeys(texts) if name in names]
        others = {name for kind, name in related if kind in LANGUAGE_RELATIONS and name in names}
        for name in (*texts, *others):
            self._parts[name] = self._part(archive, name)
        if self._parts[main].root.tag != f"{WORD_XML}document":
            raise ValueError(f"{main} is not a Word document")
        if num_drawn := sum(kind in DRAWN_RELATIONS for kind, _ in related):
            log.warn(f"{self._place}: the text in {num_drawn} charts and diagrams is not translated")
        return texts

    def _part(self, archive: zipfile.ZipFile, name: str) -> XmlFile:
        limit = min(MAX_UNPACKED_BYTES, FREE_PART_BYTES + MAX_PART_EXPANSION * len(self._content))
        chunks = list[bytes]()
        with archive.open(name) as file:
            while data := file.read(READ_BYTES):
                chunks.append(data)
                self._unpacked += len(data)
                if self._unpacked > limit:
                    raise ArtefactError(
                        f"{self._place}: the parts with text unpack to more than {limit:,} bytes; the limit is "
                        f"{MAX_PART_EXPANSION} times the size of the file plus {FREE_PART_BYTES:,} bytes, and at most "
                        f"{MAX_UNPACKED_BYTES:,} bytes"
                    )
        return XmlFile(b"".join(chunks).replace(STRICT, USUAL), "DOCX", f"{self._place}/{name}")

    def _relations(self, archive: zipfile.ZipFile, source: str) -> Iterator[tuple[str, str]]:
        """The kinds and names of the parts that a part refers to. An empty name stands for the whole document."""
        folder, _, file = source.rpartition("/")
        name = posixpath.join(folder, "_rels", f"{file}.rels")
        if name in archive.namelist():
            for relation in self._part(archive, name).root:
                target = posixpath.normpath(posixpath.join("/", folder, relation.get("Target", "")))
                if relation.get("TargetMode") != "External":
                    yield relation.get("Type", "").rpartition("/")[2], target.lstrip("/")

    def units(self, languages: Languages) -> list[Unit]:
        """All paragraphs that have text. A document contains only one language."""
        self._languages = languages
        units, number = [], 0
        for file in map(self._parts.__getitem__, self._text_names):
            for paragraph in file.root.iter(f"{WORD_XML}p"):
                number += 1
                markers = Markers()
                base = _base_format(paragraph)
                text = _text(list(_nodes(paragraph)), base, markers)
                if MARKER.sub("", text).strip():
                    write = partial(self._write, file, paragraph, base, markers)
                    units.append(Unit(f"paragraph {number}", text, write, markers))
        return units

    def _write(self, file: XmlFile, paragraph: Any, base: RunFormat, markers: Markers, translation: str) -> None:
        for child in list(paragraph):
            if child.tag != f"{WORD_XML}pPr":
                paragraph.remove(child)
        _append(paragraph, base, translation, markers)
        for language in paragraph.iterfind(f".//{WORD_XML}rPr/{WORD_XML}lang"):
            self._set_language(language)
        file.changed = True

    def _set_language(self, element: Any) -> bool:
        """Declare the target language in an element. Returns whether the element changed."""
        target = self._languages.target
        name = WORD_XML + LANGUAGE_ATTRIBUTES.get(two_letter_code(target), "val")
        is_other = not is_language(element.get(name, ""), [target])
        if is_other:
            element.set(name, target.replace("_", "-"))
        return is_other

    def content(self) -> bytes:
        """The document. Unchanged parts are copied, and the styles declare the target language."""
        if not any(file.changed for file in self._parts.values()):
            return self._content
        for name in self._parts.keys() - set(self._text_names):
            file = self._parts[name]
            for element in file.root.iter(f"{WORD_XML}lang", f"{WORD_XML}themeFontLang"):
                if is_language(element.get(f"{WORD_XML}val", ""), [self._languages.source]):
                    file.changed |= self._set_language(element)
        output = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(self._content)) as old, zipfile.ZipFile(output, "w") as new:
            for info in old.infolist():
                if (part := self._parts.get(info.filename)) is not None and part.changed:
                    is_strict = STRICT in old.read(info)
                    new.writestr(info, part.content().replace(*((USUAL, STRICT) if is_strict else (b"", b""))))
                else:
                    _copy_part(self._content, info, new)
        return output.getvalue()


def _content_start(content: bytes, info: zipfile.ZipInfo) -> int:
    """The offset of a part's content in an archive, or of the end of the archive if the part is damaged."""
    header = content[info.header_offset : info.header_offset + LOCAL_HEADER.size]
    if len(header) < LOCAL_HEADER.size or not header.startswith(b"PK\3\4"):
        return len(content)
    name_length, extra_length = LOCAL_HEADER.unpack(header)
    return int(info.header_offset + LOCAL_HEADER.size + name_length + extra_length)


def _copy_part(content: bytes, info: zipfile.ZipInfo, new: zipfile.ZipFile) -> None:
    """Copy a part of an archive into a new one without unpacking it. `zipfile` has no function for that."""
    start = _content_start(content, info)
    copied = copy.copy(info)
    copied.flag_bits &= ~HAS_DESCRIPTOR
    copied.header_offset = new.start_dir
    assert new.fp is not None
    new.fp.seek(new.start_dir)
    new.fp.write(copied.FileHeader() + content[start : start + info.compress_size])
    new.start_dir = new.fp.tell()
    new.filelist.append(copied)
    new.NameToInfo[copied.filename] = copied


def _format_of(run: Any) -> RunFormat:
    properties = run.find(f"{WORD_XML}rPr")
    if properties is None:
        return RunFormat(None, "")
    shown = [etree.tostring(item, with_tail=False).decode() for item in properties if item.tag not in PROOFING]
    return RunFormat(properties, "".join(sorted(shown)))


def _base_format(parent: Any) -> RunFormat:
    """The formatting that most characters in the runs of an element have, ignoring inner containers."""
    formats: dict[str, RunFormat] = {}
    counts: Counter[str] = Counter()
    for run in parent.iterchildren(f"{WORD_XML}r"):
        format = _format_of(run)
        formats.setdefault(format.as_text, format)
        counts[format.as_text] += sum(len(text.text or "") for text in run.iterchildren(f"{WORD_XML}t"))
    return formats[counts.most_common(1)[0][0]] if counts else RunFormat(None, "")


def _nodes(parent: Any) -> Iterator[Any]:
    """The items of the runs in a paragraph or container, and all other elements in it."""
    for child in parent:
        if child.tag != f"{WORD_XML}r":
            if child.tag not in DROPPED and child.tag != f"{WORD_XML}pPr":
                yield child
            continue
        format = _format_of(child)
        for item in child:
            if item.tag != f"{WORD_XML}rPr" and item.tag not in DROPPED:
                yield Item(item, format)


def _text(nodes: Sequence[Any], base: RunFormat, markers: Markers, depth: int = 0) -> str:
    """The content of a paragraph or container as a text with markers. nodes: see `_nodes`; depth: number of enclosing fields"""
    pieces: list[tuple[RunFormat, RunPiece]] = []
    ends = _field_ends(nodes)
    place = 0
    while place < len(nodes):
        node = nodes[place]
        end = ends.get(place, place)
        if end > place:
            pieces.append((base, _field(nodes[place : end + 1], base, markers, depth)))
        elif isinstance(node, Item):
            pieces.append((node.format, _run_item(node)))
        elif (content := _content(node)) is not None:
            inner_base = _base_format(content)
            marker = markers.opening(Container(node, inner_base))
            inner = _text(list(_nodes(content)), inner_base, markers, depth)
            pieces.append((base, MarkedText(marker + inner + CLOSING)))
        else:
            is_shown = node.tag == f"{WORD_XML}fldSimple" or str(node.tag).endswith("}oMath")
            pieces.append((base, Tag((node,), "word" if is_shown else "alone")))
        place = end + 1
    return _joined(pieces, base, markers)


def _field_ends(nodes: Sequence[Any]) -> dict[int, int]:
    """Map the start of each field to its end. Fields that end in another paragraph are omitted."""
    ends, opened = {}, list[int]()
    for place, node in enumerate(nodes):
        kind = _field_type(node)
        if kind == "begin":
            opened.append(place)
        elif kind == "end" and opened:
            ends[opened.pop()] = place
    return ends


def _field(nodes: Sequence[Any], base: RunFormat, markers: Markers, depth: int) -> Tag | MarkedText:
    """A field. nodes: all nodes from its start to its end"""
    level, separator, code = 0, 0, ""
    for place, node in enumerate(nodes):
        kind = _field_type(node)
        level += {"begin": 1, "end": -1}.get(kind, 0)
        if level == 1 and kind == "separate":
            separator = place
            break
        if level == 1 and isinstance(node, Item) and node.element.tag == f"{WORD_XML}instrText":
            code += node.element.text or ""
    name = _field_name(code)
    if name not in TEXT_FIELDS or not separator or depth == MAX_NESTED_FIELDS:
        return Tag(tuple(nodes), "alone" if name in UNSEEN_FIELDS else "word")
    opening = markers.opening(TagPair(tuple(nodes[: separator + 1]), (nodes[-1],)))
    return MarkedText(opening + _text(nodes[separator + 1 : -1], base, markers, depth + 1) + CLOSING)


def _field_name(code: str) -> str:
    return (code.split() or [""])[0].upper()


def _content(element: Any) -> Any:
    """The element that directly contains the runs of a container; None if the element does not contain text."""
    if element.tag == f"{WORD_XML}fldSimple":
        return element if _field_name(element.get(f"{WORD_XML}instr", "")) in TEXT_FIELDS else None
    if element.tag != CONTENT_CONTROL:
        return element if element.tag in CONTAINERS else None
    is_fixed = any(item.tag in FIXED_CONTROLS for item in element.iterfind(f"{WORD_XML}sdtPr/*"))
    return None if is_fixed else element.find(CONTENT_OF_CONTROL)


def _add_container(parent: Any, original: Any) -> Any:
    """Append a copy of a container without its content. Returns the element that the content belongs in."""
    added = etree.SubElement(parent, original.tag, original.attrib)
    if original.tag != CONTENT_CONTROL:
        return added
    added.extend(copy.deepcopy(item) for item in original if item.tag != CONTENT_OF_CONTROL)
    return etree.SubElement(added, CONTENT_OF_CONTROL)


def _field_type(node: Any) -> str:
    """The role of a node in a field: begin, separate or end; empty for other nodes."""
    is_part = isinstance(node, Item) and node.element.tag == f"{WORD_XML}fldChar"
    return str(node.element.get(f"{WORD_XML}fldCharType", "")) if is_part else ""


def _run_item(item: Item) -> str | Tag:
    """The text of an item in a run, or a tag that stands for a run containing only this item."""
    element = item.element
    if element.tag == f"{WORD_XML}t":
        is_raised = re.search("vertAlign[^>]*su(?:per|b)script", item.format.as_text)
        if is_raised and not any(map(str.isalpha, element.text or "")):  # the number of a note
            return Tag((item,), "alone")
        return (element.text or "").replace("\n", " ")
    if element.tag == f"{WORD_XML}noBreakHyphen":
        return "\N{NON-BREAKING HYPHEN}"
    return Tag((item,), "break" if element.tag in BREAKS else "alone")


def _joined(pieces: list[tuple[RunFormat, RunPiece]], base: RunFormat, markers: Markers) -> str:
    """Join pieces with the same formatting. Formatting that differs from the base becomes a pair of markers."""
    groups: list[tuple[RunFormat, list[RunPiece]]] = []
    for format, piece in pieces:
        is_blank = isinstance(piece, Tag) or (
            isinstance(piece, str) and not piece.strip()
        )  # formatting is invisible on spaces
        if not groups or not (is_blank or groups[-1][0].as_text == format.as_text):
            groups.append((base if is_blank else format, []))
        groups[-1][1].append(piece)
    texts = [(format, markers.mark(list(_parts(group)))) for format, group in groups]
    return "".join(
        text if format.as_text == base.as_text else _in_pairs(text, format, markers) for format, text in texts
    )


def _parts(pieces: Sequence[RunPiece]) -> Iterator[str | Tag]:
    """The parts of some pieces. Adjacent texts are joined, and split at the tags that are written in them."""
    for is_text, run in groupby(pieces, key=lambda piece: isinstance(piece, str)):
        if is_text:
            yield from written_tags("".join(map(str, run)))
        else:
            yield from (piece.text if isinstance(piece, MarkedText) else piece for piece in run)


def _in_pairs(text: str, format: RunFormat, markers: Markers) -> str:
    """Put a pair of markers around each text between breaks."""
    parts = enumerate(TEXT_BREAK.split(text))
    return "".join(part if i % 2 or not part else markers.opening(format) + part + CLOSING for i, part in parts)


def _add_run(parent: Any, format: RunFormat) -> Any:
    """Append a new run to an element, with a copy of the given formatting."""
    run = etree.SubElement(parent, f"{WORD_XML}r")
    if format.properties is not None:
        run.append(copy.deepcopy(format.properties))
    return run


def _append(paragraph: Any, base: RunFormat, text: str, markers: Markers) -> None:
    """Append a text with markers to a paragraph as runs."""
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
        else:
            for node in part:
                is_item = isinstance(node, Item)
                (_add_run(parent, node.format) if is_item else parent).append(node.element if is_item else node)


def _append_runs(parent: Any, format: RunFormat, text: str) -> None:
    """Append a run with this text, unless it is empty."""
    if text:
        written = etree.SubElement(_add_run(parent, format), f"{WORD_XML}t")
        written.text = text
        written.set(XML_SPACE, "preserve")


@register("format", "docx", DocumentOptions)
class DocxFormat(UnitFormat):
    """Word documents: translates the paragraphs of every part that has text."""

    document = DocxDocument
