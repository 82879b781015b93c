"""Text with tags: parse it into blocks of plain text with elements and markers, which a translation gets back.

Tags are never judged: what is not well-formed is kept where it stands. An element is a pair of tags; a marker is anything that
stands at a place and holds no text to translate: a single tag, a comment, code, a placeholder.
"""

import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from nmt.extensions.texts.passes.options import MarkupName

NO_ELEMENT: Final = -1
MAX_NESTED_ELEMENTS: Final = 100  # elements around one another; tags further in are markers
MAX_ATTRIBUTE_PARTS: Final = 1000  # of a tag: values, and single characters outside them; a longer one is text
CODE: Final = r"<!--|<!\[CDATA\[|<[!?][^<>]*+>"
ELEMENT_TAG: Final = (
    r"<(?P<close>/?)(?P<name>[A-Za-z_][\w:.-]*+)"
    rf"(?P<attributes>(?:\"[^\"]*\"|'[^']*'|[^'\"<>]){{0,{MAX_ATTRIBUTE_PARTS}}}+)>"
)
REFERENCE: Final = r"&(?!(?:amp|lt|gt|quot|apos);)[A-Za-z_][\w.-]{0,60};"  # of XML, to what its document declares
TAG_PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    "html": re.compile(rf"(?P<code>{CODE})|{ELEMENT_TAG}"),
    "xml": re.compile(rf"(?P<code>{CODE}|{REFERENCE})|{ELEMENT_TAG}"),
}
ENDS: Final = {"<!--": "-->", "<![CDATA[": "]]>"}
# HTML's elements without an end, those that hold no text, and tags at which a sentence ends.
VOID: Final = re.compile("area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr")
NO_TEXT: Final = re.compile("script|style|code|pre|kbd|samp|var|textarea|svg|math")
BLOCK: Final = re.compile(
    "address|article|aside|blockquote|body|br|button|caption|center|dd|details|dialog|div|dl|dt|fieldset|figcaption|figure|footer|"
    "form|h[1-6]|head|header|hr|html|legend|li|main|menu|nav|ol|optgroup|option|p|section|select|summary|table|tbody|td|tfoot|th|"
    "thead|title|tr|ul"
)
KEPT_AS_IT_IS: Final = re.compile(
    r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE
)
XML_ENTITY: Final = re.compile(r"&(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});")
HTML_ENTITY: Final = re.compile(
    r"&(?:[A-Za-z][A-Za-z0-9]{1,31};?|#\d{1,7}(?!\d);?|#[xX][0-9a-fA-F]{1,6}(?![0-9a-fA-F]);?)"
)
PLACEHOLDER: Final = re.compile(
    r"""
      %\([^()\s]{1,100}\)[-+\#0]{0,5}+\d{0,4}(?:\.\d{1,4})?[A-Za-z]  # %(name)s of Python
    | %\{[^{}\s]{1,100}\}                                       # %{name} of Ruby
    | (?<!\d)%(?:\d{1,4}\$)?[-+\#0]{0,5}+(?:\d{1,4}|\*)?(?:\.(?:\d{1,4}|\*))?(?:hh|ll|[hlLqjzt])?[a-zA-Z@](?![a-z])  # printf
    | (?<!\d)%L?\d{1,4} | %% | %\w{1,60}%                           # %1 of Qt, %VARIABLE% of Windows
    | \$?\{\{?[^{}\s]{0,100}\}\}?                               # {0}, {name:.2f}, {{name}}, ${NAME}
    | \$[A-Za-z_]\w{0,60}+
    | &(?:[A-Za-z]\w{0,31}|\#\d{1,7}|\#x[0-9A-Fa-f]{1,6});                   # an entity of HTML
    | https?://[^\s<>"]+ | (?<![\w.+-])[\w.+-]{1,100}+@[\w-]{1,100}\.[\w.-]{0,100}\w      # addresses
    """,
    re.VERBOSE,
)


class Element(NamedTuple):
    """A pair of tags around some text. start, end: characters of the plain text; open, close: the tags, "" if in another part"""

    start: int
    end: int
    open: str
    close: str


class Marker(NamedTuple):
    """What stands at a place of the plain text.

    inside: number of the innermost element around it; NO_ELEMENT if none is
    before, after: whether white space stands there too
    """

    position: int
    raw: str
    inside: int
    before: bool
    after: bool


@dataclass(frozen=True)
class Passage:
    """Plain text that is translated as one, with what stands in it.

    elements: an outer one before those in it; two of them are disjoint, or one holds the other
    markers: in their order
    """

    text: str
    elements: tuple[Element, ...] = ()
    markers: tuple[Marker, ...] = ()

    @property
    def is_marked(self) -> bool:
        return bool(self.elements or self.markers)

    def parts(self, spans: Sequence[tuple[int, int]]) -> list["Passage"]:
        """The passage in parts. An element over several has its first tag in one and its last in another.

        spans: of characters, in order; between them is white space
        """
        ends = [*(end for _, end in spans[:-1]), len(self.text)]  # the last position of the markers of each part
        starts = [start for start, _ in spans]
        elements: list[list[Element]] = [[] for _ in spans]
        markers: list[list[Marker]] = [[] for _ in spans]
        numbers: dict[tuple[int, int], int] = {}  # of an element in a part
        for i, element in enumerate(self.elements):
            for k in range(bisect_right(ends, element.start), bisect_left(starts, element.end)):
                start, end = spans[k]
                first, last = max(element.start, start), min(element.end, end)
                if first < last:
                    numbers[k, i] = len(elements[k])
                    opening = element.open if k == 0 or element.start >= spans[k - 1][1] else ""
                    closing = element.close if k + 1 == len(spans) or element.end <= starts[k + 1] else ""
                    elements[k].append(Element(first - start, last - start, opening, closing))
        for marker in self.markers:
            k = bisect_left(ends, marker.position)
            start, end = spans[k]
            position = min(max(marker.position, start), end) - start
            inside = numbers.get((k, marker.inside), NO_ELEMENT)
            markers[k].append(marker._replace(position=position, inside=inside))
        return [
            Passage(self.text[start:end], tuple(elements[k]), tuple(markers[k])) for k, (start, end) in enumerate(spans)
        ]

    def without_placeholders(self) -> "Passage":
        """The same passage with each placeholder as a marker, which the model does not see."""
        passage = self
        for found in reversed(list(PLACEHOLDER.finditer(self.text))):
            passage = passage._without(*found.span())
        return passage

    def _without(self, start: int, end: int) -> "Passage":
        """The same passage with the characters from start to end as a marker; so is an element that holds nothing else."""

        def moved(position: int) -> int:
            return position if position <= start else max(start, position - (end - start))

        raw, text = escaped(self.text[start:end]), self.text[:start] + self.text[end:]
        kept: list[Element] = []
        numbers, inside = {NO_ELEMENT: NO_ELEMENT}, NO_ELEMENT
        emptied: list[Element] = []
        for i, element in enumerate(self.elements):
            new = element._replace(start=moved(element.start), end=moved(element.end))
            holds = element.start <= start and end <= element.end
            if text[new.start : new.end].strip():
                numbers[i] = len(kept)
                kept.append(new)
                inside = numbers[i] if holds else inside
            else:
                emptied.append(element)
        for element in reversed(emptied):
            raw = element.open + raw + element.close
        markers = [
            marker._replace(position=moved(marker.position), inside=numbers.get(marker.inside, inside))
            for marker in self.markers
        ]
        markers.append(_marker(text, start, raw, inside))
        return Passage(text, tuple(kept), tuple(sorted(markers, key=lambda marker: marker.position)))


def parse(text: str, markup: MarkupName) -> list[str | Passage]:
    """The passages of a text, and as they are written the tags between them."""
    if markup == "none":
        return [Passage(text)]
    block, parts = list[TextPiece](), list[str | Passage]()
    for piece in pieces_of(text, markup):
        if piece.kind == "block":
            parts += [_passage(block, markup), piece.raw]
            block = []
        else:
            block.append(piece)
    parts.append(_passage(block, markup))
    return [piece for part in parts for piece in ([part] if isinstance(part, str) else _trimmed(part)) if piece]


def _trimmed(passage: Passage) -> list[str | Passage]:
    """A passage without the white space around it and its markers, which stands beside it."""
    text, places = passage.text, [marker.position for marker in passage.markers]
    start, end = min([len(text) - len(text.lstrip()), *places]), max([len(text.rstrip()), *places])
    return [text[:start], *passage.parts([(start, end)]), text[end:]]


def escaped(text: str) -> str:
    """Text as it is written between tags."""
    return html.escape(text, quote=False)


def placeholders(text: str) -> list[str]:
    """The placeholders of a text, sorted."""
    return sorted(found[0] for found in PLACEHOLDER.finditer(text))


def has_letters(text: str) -> bool:
    """Whether there is anything to translate besides placeholders, digits and punctuation."""
    return any(map(str.isalpha, PLACEHOLDER.sub("", text)))


class TextPiece(NamedTuple):
    """kind: text, open, close, marker or block (which ends a passage); raw: as it is written"""

    kind: str
    raw: str
    name: str = ""


def pieces_of(text: str, markup: MarkupName) -> Iterator[TextPiece]:
    """The tags of a text and what stands between them. An element that is not to be translated is a marker."""
    start, hidden, names = 0, "", list[str]()  # of an element that is not to be translated: its text, and open elements
    for found, end in _tags(text, markup):
        between, raw, start = text[start : found.start()], text[found.start() : end], end
        kind, name = _kind(found, markup), found["name"] or ""
        name = name.lower() if markup == "html" else name
        if names:
            hidden += between
        elif between:
            yield TextPiece("text", between)
        if not names and not (kind == "open" and _is_hidden(name, found["attributes"], markup)):
            yield TextPiece("block" if markup == "html" and BLOCK.fullmatch(name) else kind, raw, name)
            continue
        hidden += raw
        if kind == "open" and len(names) < MAX_NESTED_ELEMENTS:
            names.append(name)
        elif kind == "close" and name in names:
            while names.pop() != name:
                pass
        if not names:
            yield TextPiece("marker", hidden)
            hidden = ""
    if hidden:
        yield TextPiece("marker", hidden)
    if start < len(text):
        yield TextPiece("text", text[start:])


def _tags(text: str, markup: MarkupName) -> Iterator[tuple[re.Match[str], int]]:
    """The tags, comments and the like of a text, and where each ends. A comment without an end is text."""
    at, missing = 0, set[str]()
    while (found := TAG_PATTERNS[markup].search(text, at)) is not None:
        at = found.end()
        if (mark := ENDS.get(found["code"])) is not None:
            place = -1 if mark in missing else text.find(mark, at)
            if place < 0:
                missing.add(mark)
                continue
            at = place + len(mark)
        yield found, at


def _is_hidden(name: str, attributes: str, markup: MarkupName) -> bool:
    """Whether an element is not to be translated."""
    return bool(KEPT_AS_IT_IS.search(attributes) or (markup == "html" and NO_TEXT.fullmatch(name)))


def _kind(found: re.Match[str], markup: MarkupName) -> str:
    if found["code"] is not None:
        return "marker"
    if found["close"]:
        return "close"
    is_single = found["attributes"].endswith("/") or (markup == "html" and VOID.fullmatch(found["name"].lower()))
    return "marker" if is_single else "open"


def _passage(pieces: Sequence[TextPiece], markup: MarkupName) -> str | Passage:
    """The passage of the pieces between two blocks; text as it is written if there is nothing to translate.

    A tag without its end, or without its beginning, is a marker; so is an element without words.
    """
    entity = HTML_ENTITY if markup == "html" else XML_ENTITY
    plain = [
        entity.sub(lambda found: html.unescape(found[0]), piece.raw) if piece.kind == "text" else "" for piece in pieces
    ]
    words = list(accumulate((bool(part.strip()) for part in plain), initial=0))  # texts with words before each piece
    if not words[-1]:
        return _raw(pieces)
    ends = ends_of_elements(pieces)
    closing = set(ends.values())
    text, elements, markers = "", list[Element](), list[tuple[int, str, int]]()
    inside, place = [NO_ELEMENT], 0  # the numbers of the elements around a place
    while place < len(pieces):
        end = ends.get(place, place)
        if pieces[place].kind == "text":
            text += plain[place]
        elif words[end] > words[place]:
            inside.append(len(elements))
            elements.append(Element(len(text), len(text), pieces[place].raw, pieces[end].raw))
        elif place in closing:
            number = inside.pop()
            elements[number] = elements[number]._replace(end=len(text))
        else:
            markers.append((len(text), _raw(pieces[place : end + 1]), inside[-1]))
            place = end
        place += 1
    return Passage(text, tuple(elements), tuple(_marker(text, *marker) for marker in markers))


def ends_of_elements(pieces: Sequence[TextPiece]) -> dict[int, int]:
    """The place of the second tag of each element by that of its first. Elements that it leaves open inside have none."""
    opened: list[int] = []
    ends: dict[int, int] = {}
    for place, piece in enumerate(pieces):
        if piece.kind == "open" and len(opened) < MAX_NESTED_ELEMENTS:
            opened.append(place)
        elif piece.kind == "close" and any(pieces[start].name == piece.name for start in opened):
            while pieces[start := opened.pop()].name != piece.name:
                pass
            ends[start] = place
    return ends


def _raw(pieces: Sequence[TextPiece]) -> str:
    return "".join(piece.raw for piece in pieces)


def _marker(text: str, position: int, raw: str, inside: int) -> Marker:
    return Marker(
        position, raw, inside, text[position - 1 : position].isspace(), text[position : position + 1].isspace()
    )
