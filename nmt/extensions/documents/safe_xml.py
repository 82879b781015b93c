"""Reads XML documents safely, changes them in place, and writes them without changing bytes outside the root element.

Documents must not declare or load entities, because entities can include files and expand without limit.
"""

import copy
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final
from xml.parsers import expat

from lxml import etree

from nmt.errors import ArtefactError
from nmt.extensions.documents.document import Unit, damaged
from nmt.extensions.documents.markers import CLOSING, Markers, Tag, TagKind, code_tag, written_tags

MAX_DEPTH: Final = 200  # maximum depth of nested elements; lxml refuses a depth of 256
XML_SPACE: Final = "{http://www.w3.org/XML/1998/namespace}space"
XML_LANG: Final = "{http://www.w3.org/XML/1998/namespace}lang"
BREAK_TYPES: Final = {"lb", "pb", "xlf:lb", "xlf:pb"}
# Elements that are half of a pair: their kind, and the group within which they are numbered.
HALVES: Final[Mapping[str, tuple[TagKind, str]]] = {
    "bpt": ("open", "pt"),
    "ept": ("close", "pt"),
    "bx": ("open", "x"),
    "ex": ("close", "x"),
    "sc": ("open", "c"),
    "ec": ("close", "c"),
    "sm": ("open", "m"),
    "em": ("close", "m"),
    "it open": ("open", "it"),
    "it begin": ("open", "it"),
    "it close": ("close", "it"),
    "it end": ("close", "it"),
}
ANGULAR: Final = re.compile(r"(START|CLOSE)_(?:TAG_)?(\w+)")
NO_CODES: Final[Mapping[str, str]] = MappingProxyType({})
SPACES: Final = re.compile(r"[ \t\r\n]+")


class XmlFile:
    """An XML document.

    root: its root element
    changed: whether `content` must serialize the tree again
    format, place: names for messages
    """

    def __init__(self, content: bytes, format: str, place: str) -> None:
        self._content, self._place, self.changed = content, place, False
        self._start, self._end = _check(content, format, place)
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, strip_cdata=False)
        try:
            self.root = etree.fromstring(content, parser)
        except etree.XMLSyntaxError as error:
            raise damaged(place, format, error.msg, error.lineno) from None

    def content(self) -> bytes:
        """The bytes of the document; identical to the file unless something was changed."""
        if not self.changed:
            return self._content
        encoding = self.root.getroottree().docinfo.encoding or "UTF-8"
        if "16" in encoding or "32" in encoding:
            written: bytes = etree.tostring(self.root.getroottree(), encoding=encoding, xml_declaration=True)
            return written
        root: bytes = etree.tostring(self.root, encoding=encoding, xml_declaration=False, with_tail=False)
        if b"\r\n" in self._content[self._start : self._end]:
            root = root.replace(b"\n", b"\r\n")
        return self._content[: self._start] + root + self._content[self._end :]


def _check(content: bytes, format: str, place: str) -> tuple[int, int]:
    """Return the byte offsets of the root element. Raises InputError for invalid XML, and ArtefactError for an attack.

    expat reads the document as a stream and stops at the first entity declaration.
    """
    parser = expat.ParserCreate()
    depth, start, end = 0, 0, 0

    def open_element(_name: str, _attributes: Any) -> None:
        nonlocal depth, start
        depth += 1
        if depth == 1:
            start = parser.CurrentByteIndex
        if depth > MAX_DEPTH:
            raise ArtefactError(f"{place}:{parser.CurrentLineNumber}: the XML is more than {MAX_DEPTH} levels deep")

    def close_element(_name: str) -> None:
        nonlocal depth, end
        depth -= 1
        end = parser.CurrentByteIndex

    def declare_entity(*_declaration: Any) -> None:
        raise ArtefactError(
            f"{place}:{parser.CurrentLineNumber}: nmt does not read XML that declares entities (export the document without them)"
        )

    parser.StartElementHandler, parser.EndElementHandler = open_element, close_element
    parser.EntityDeclHandler = declare_entity
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, ValueError, LookupError, Warning) as error:  # the last three come from unknown encodings
        reason = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else error
        raise damaged(place, format, reason, parser.CurrentLineNumber) from None
    return start, content.find(b">", end) + 1  # an empty root element has no end tag


def local_name(element: Any) -> str:
    """The name of an element without its namespace; empty for a comment or a processing instruction."""
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def qualified(element: Any, name: str) -> str:
    """A name, qualified with the namespace of an element."""
    namespace = etree.QName(element).namespace
    return f"{{{namespace}}}{name}" if namespace else name


def children(element: Any, name: str) -> Iterator[Any]:
    """The children of an element that have the given name in the element's namespace."""
    yield from element.iterchildren(qualified(element, name))


def child(element: Any, name: str) -> Any:
    """The first child that has the given name in the element's namespace, or None."""
    return next(children(element, name), None)


def new_after(element: Any, name: str) -> Any:
    """Add a new element after another one, with the same indentation."""
    created = etree.Element(qualified(element, name))
    previous, tail = element.getprevious(), element.tail
    indent = element.getparent().text if previous is None else previous.tail
    element.tail = None
    element.addnext(created)
    element.tail, created.tail = indent if indent and not indent.strip() else None, tail
    return created


def inherited(element: Any, attribute: str, default: str) -> str:
    """The value of an attribute on an element, or on its nearest ancestor that has the attribute."""
    values = (around.get(attribute) for around in (element, *element.iterancestors()))
    return next((str(value) for value in values if value is not None), default)


def is_empty(element: Any, pairs: Collection[str]) -> bool:
    """Whether an element has no visible text. pairs: names of inline elements that contain text, not code"""
    texts = [element.text, *(inner.tail for inner in element)]
    inside = (inner for inner in element if local_name(inner) in pairs)
    return not any((text or "").strip() for text in texts) and all(is_empty(inner, pairs) for inner in inside)


def inline_text(
    element: Any, markers: Markers, pairs: Collection[str], keep_lines: bool, codes: Mapping[str, str] = NO_CODES
) -> str:
    """Convert the content of an element to a text with markers.

    pairs: names of inline elements that contain text; any other element is a single tag or half of a pair
    keep_lines: whether to keep line breaks; if not, white space becomes one space, because an editor may have indented the text
    codes: the original codes that inline elements refer to, by their id
    """

    def literal(text: str | None) -> list[str | Tag]:
        return written_tags((text or "") if keep_lines else SPACES.sub(" ", text or ""))

    pieces = literal(element.text)
    for inner in element:
        if local_name(inner) in pairs and not _is_protected(inner):
            opening = markers.opening(inner)
            pieces.append(opening + inline_text(inner, markers, pairs, keep_lines, codes) + CLOSING)
        else:
            pieces.append(_inline_tag(inner, codes))
        pieces += literal(inner.tail)
    return markers.mark(pieces)


def original_codes(element: Any) -> dict[str, str]:
    """The original codes of the unit around an element, by id (XLIFF 2.0). The first of an id counts."""
    found = [
        (data.get("id"), "".join(data.itertext()))
        for around in element.iterancestors("{*}unit")
        for data in around.iterfind("{*}originalData/{*}data")
    ]
    return dict(reversed(found))


def texts_in_codes(element: Any) -> list[Unit]:
    """The texts inside inline codes (`sub`), such as the description of a picture. They are not translated."""
    found = element.iter("{*}sub")
    return [
        Unit(sub.sourceline, "".join(sub.itertext()), lambda _: None, state="not to be translated") for sub in found
    ]


def _is_protected(element: Any) -> bool:
    """Whether the text of a `mrk` must not be translated (XLIFF 1.2 and 2.0)."""
    return bool(element.get("translate") == "no" or element.get("mtype") == "protected")


def _inline_tag(element: Any, codes: Mapping[str, str]) -> Tag:
    """The tag for an inline element that has no text to translate."""
    name = local_name(element)
    if name in ("", "mrk", "cp") or element.get("xid"):  # no name: a comment; the others stand for a word
        return Tag(element, "word" if name else "alone")
    tag = code_tag(_code(element, codes), element)
    types = {element.get(attribute) for attribute in ("ctype", "type", "subType")}
    if types & BREAK_TYPES or (tag is not None and tag.kind == "break"):
        return Tag(element, "break")
    kind, family = HALVES.get(name) or HALVES.get(f"{name} {element.get('pos')}") or ("alone", "")
    if kind == "alone":
        return tag or Tag(element, "alone")
    number = next(filter(None, map(element.get, ("rid", "startRef", "i", "id"))), "")
    return Tag(element, kind, family + number * (name != "it"))


def _code(element: Any, codes: Mapping[str, str]) -> str:
    """The code in the original format that an inline element stands for; empty if it is unknown."""
    attributes = map(element.get, ("equiv-text", "equiv", "disp"))
    if code := next(filter(None, ["".join(element.itertext()), *attributes]), ""):
        return code
    number = element.get("dataRef")  # XLIFF 2.0
    if number is not None:
        return codes.get(number, "")
    angular = ANGULAR.fullmatch(element.get("id", ""))  # Angular's names for tags
    return f"<{'/' * (angular[1] == 'CLOSE')}{angular[2].lower()}>" if angular else ""


def set_inline_text(element: Any, text: str, markers: Markers) -> None:
    """Replace the content of an element with a text. The elements that its markers stand for are copied."""
    del element[:]
    element.text = None
    parents = [element]
    for kind, part in _joined_texts(markers.restored(text)):
        if kind == "text":
            _append_text(parents[-1], part)
        elif kind == "open":
            parents.append(etree.SubElement(parents[-1], part.tag, part.attrib, part.nsmap))
        elif kind == "close":
            parents.pop()
        else:
            inner = copy.deepcopy(part)
            inner.tail = None
            parents[-1].append(inner)


def _joined_texts(parts: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The parts, with adjacent texts joined, because adding to a text copies it."""
    for kind, run in groupby(parts, key=itemgetter(0)):
        if kind == "text":
            yield kind, "".join(part for _, part in run)
        else:
            yield from run


def _append_text(element: Any, text: str) -> None:
    last = next(element.iterchildren(reversed=True), None)  # indexing is slow in lxml
    if last is None:
        element.text = (element.text or "") + text or None
    else:
        last.tail = (last.tail or "") + text or None
