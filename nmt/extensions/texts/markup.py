"""Text with tags: parse it into blocks of plain text with elements and markers, which a translation gets back.

Tags are never judged: what is not well-formed is kept where it stands. An element is a pair of tags; a marker is anything that
stands at a place and holds no text to translate, such as a single tag or a comment. Placeholders are a part of the text (`Kept`).
"""

import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Final, Literal, NamedTuple

from nmt.extensions.texts.messages import CHOICE_START, MESSAGE_START, closing_brace, message_at
from nmt.extensions.texts.passes.options import MarkupName
from nmt.extensions.texts.placeholders import EMOJI_SIGN, PLACEHOLDER, WIDTHLESS

NO_ELEMENT: Final = -1
MAX_NESTED_ELEMENTS: Final = 100  # elements around one another; tags further in are markers
MAX_ATTRIBUTE_PARTS: Final = 1000  # of a tag: values, and single characters outside them; a longer one is text
MAX_TEXTS_OF_MESSAGE: Final = 64  # sentences that the branches of one sentence's messages are written out to
MAX_BROKEN_MESSAGES: Final = 10  # of a text, whose ends are looked for; the others count as broken too
BLOCK_SIGN: Final = "\x1e"  # stands in a plain text for the tag of a block
STAND_IN: Final = "Xxxxx"  # stands in a plain text for code
SOFT_HYPHEN: Final = "\u00ad"
# What ends at its own mark, whatever is in it: comments, code and templates, which may have tags inside and stand inside tags.
ENDS: Final = {"<!--": "-->", "<![CDATA[": "]]>", "<?": "?>", "<%": "%>", "{%": "%}", "{{": "}}", "{#": "#}"}
DOCTYPE: Final = r"""<!DOCTYPE(?:"[^"]*"|'[^']*'|[^"'<>\[\]])*+(?:\[[^\]]*+\]\s*+)?>"""
FORMULA: Final = r"(?<!\w)[A-Z][A-Za-z]{0,3}(?:<sub>[\d+-]{1,4}</sub>[A-Za-z]{0,4}){1,9}"
CLOSED_CODE: Final = re.compile(
    rf"<!--|<!\[CDATA\[|<\?|<%|\{{%|\{{\{{|\{{\#(?=\s)|(?P<whole>{DOCTYPE}|{FORMULA})|(?P<message>{MESSAGE_START.pattern})"
    rf"|(?P<choice>{CHOICE_START.pattern})"
)
ELEMENT_TAG: Final = (
    r"<(?P<close>/?)(?P<name>[A-Za-z_][\w:.-]*+|\d{1,3}(?=/?>))"  # <0> is a tag of react-i18next
    rf"(?P<attributes>(?:\"[^\"]*\"|'[^']*'|[^'\"<>]){{0,{MAX_ATTRIBUTE_PARTS}}}+)>"
)
REFERENCE: Final = r"&(?!(?:amp|lt|gt|quot|apos);)[A-Za-z_][\w.-]{0,60};"  # of XML, to what its document declares
# Marks that texts of any format have: links and bold text of Markdown, BBCode, styles of subtitles.
WRITTEN_MARKS: Final = (
    r"(?P<link>!?\[(?=[^\[\]\n]{1,500}\]\([^()\s<>]{0,1000}(?:\s+\"[^\"<>]*\")?\)))"
    r"|(?P<link_end>(?<=[^\[\]\n])\]\([^()\s<>]{0,1000}(?:\s+\"[^\"<>]*\")?\))"
    r"|(?P<bold>\*\*(?=\S[^*\n]{0,300}\*\*)|(?<=\S)\*\*)"
    r"|\[(?P<bb_close>/?)(?P<bb>b|i|u|s|url|quote|color|size|center|list)(?:=[^\[\]\n]{0,200})?\]"
    r"|\{\\(?P<style>[a-zA-Z]*)(?P<value>[^{}\s]{0,200})\}"
)
WRITTEN_BREAK: Final = r"(?<!\b[A-Za-z]:)(?<=[.!?:;,>])\\{1,2}[nrt]|\\{1,2}[nrt](?=[A-Z\W]|\Z)"  # not a part of a path
TAG_PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    "html": re.compile(rf"(?P<code><[!?][^<>]*+>)|(?P<cut>{WRITTEN_BREAK})|{ELEMENT_TAG}|{WRITTEN_MARKS}"),
    "xml": re.compile(
        rf"(?P<code><[!?][^<>]*+>|{REFERENCE})|(?P<cut>{WRITTEN_BREAK}|\t+|\n[ \t]*\n\s*)|{ELEMENT_TAG}|{WRITTEN_MARKS}"
    ),
}
# HTML's elements without an end, those that hold no text, and tags at which a sentence ends.
VOID: Final = re.compile("area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr")
NO_TEXT: Final = re.compile("script|style|code|pre|kbd|samp|var|textarea|svg|math")
BLOCK: Final = re.compile(
    "address|article|aside|blockquote|body|br|button|caption|center|dd|details|dialog|div|dl|dt|fieldset|figcaption|figure|footer|"
    "form|h[1-6]|head|header|hr|html|legend|li|main|menu|nav|ol|optgroup|option|p|section|select|summary|table|tbody|td|tfoot|th|"
    "thead|title|tr|ul"
)
# Blocks of DocBook, DITA, TEI, JATS, office documents and translation files, and tags inside a sentence of any of them.
XML_BLOCK: Final = re.compile(
    f"{BLOCK.pattern}|ab|abstract|bookmark|cell|chapter|description|entry|example|footnote|formalpara|heading|item|itemizedlist|"
    "informaltable|l|label|lb|lg|line|list-?item|list|message|note|orderedlist|pagebreak|para|paragraph|pb|plural|row|sec|seg|"
    "segment|sheet|simpara|simplelist|sli?|source|step|string|string-array|subtitle|tab|target|tgroup|trans-unit|tu|unit|value|verse"
)
INLINE: Final = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|data|del|dfn|em|emphasis|font|g|hi|i|ins|it|kbd|link|mark|mrk|pc|ph|phrase|q|quote|r|ref|"
    "s|samp|small|span|strike|strong|sub|sup|superscript|subscript|t|term|time|tt|u|ulink|uri|var|w|x|xref|\\d+"
)
# Single tags of XLIFF and TMX that are pairs: what opens one, what closes it, and the attributes that both name it by.
PAIR_TAGS: Final = {"bx": "ex", "bpt": "ept", "sc": "ec", "sm": "em"}
PAIR_NAME: Final = re.compile(r"""\s(?:startRef|rid|i|id)\s*=\s*["']([^"']*)""")
OPEN_SIDE: Final = re.compile(r"""\spos\s*=\s*["'](?:open|begin)["']""")
KEPT_AS_IT_IS: Final = re.compile(
    r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE
)
XML_ENTITY: Final = re.compile(r"&(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});")
HTML_ENTITY: Final = re.compile(
    r"&(?:[A-Za-z][A-Za-z0-9]{1,31};?|#\d{1,7}(?!\d);?|#[xX][0-9a-fA-F]{1,6}(?![0-9a-fA-F]);?)"
)
SENTENCE_END: Final = re.compile(r"(?:[^\W\d_]{3}\.|[!?…。！？।؟])[\"'”’»)\]]*\Z")
LIST_NUMBER: Final = re.compile(r"(?:[(\[]?(?:\d{1,3}|[a-zA-Z]|[ivx]{2,5})[.)\]]|[-*•–—·▪◦‣])(?=\s+\S)")

KeptKind = Literal["word", "mark", "code", "message", "problem"]


class Element(NamedTuple):
    """A pair of tags around some text. start, end: characters of the plain text; open, close: the tags, "" if in another part"""

    start: int
    end: int
    open: str
    close: str


class Marker(NamedTuple):
    """What stands at a place of the plain text.

    inside: number of the innermost element around it; NO_ELEMENT if none is
    before, after: the characters of the text that it touches, "" at its ends
    is_word: whether it stands for a word
    """

    position: int
    raw: str
    inside: int
    before: str
    after: str
    is_word: bool = False


class Kept(NamedTuple):
    """Characters of the plain text that stand for what a translation must have as it is written.

    kind: a word; a mark, which stands for none; code, which is no text; a message with branches; a problem, which cannot be read
    """

    start: int
    end: int
    raw: str
    kind: KeptKind
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class Passage:
    """Plain text that is translated as one, with what stands in it.

    elements: an outer one before those in it; two of them are disjoint, or one holds the other
    markers, kept: in their order
    """

    text: str
    elements: tuple[Element, ...] = ()
    markers: tuple[Marker, ...] = ()
    kept: tuple[Kept, ...] = ()

    @property
    def is_marked(self) -> bool:
        return bool(self.elements or self.markers)

    @property
    def has_words(self) -> bool:
        """Whether there is anything to translate: letters, or a message that has some."""
        return any(map(str.isalpha, self.masked(" "))) or any(item.kind in ("message", "problem") for item in self.kept)

    def masked(self, sign: str = "") -> str:
        """The text with something of the same length in place of what is kept.

        sign: of which that is; by default a word that no splitter of sentences takes for an abbreviation
        """
        parts, at = list[str](), 0
        for item in self.kept:
            length = item.end - item.start
            parts += [self.text[at : item.start], sign * length or ("A" + "a" * (length - 1) if length > 1 else "0")]
            at = item.end
        return "".join([*parts, self.text[at:]])

    def parts(self, spans: Sequence[tuple[int, int]]) -> list["Passage"]:
        """The passage in parts. An element over several has its first tag in one and its last in another.

        spans: of characters, in order; between them is white space
        """
        ends = [*(end for _, end in spans[:-1]), len(self.text)]  # the last position of the markers of each part
        starts = [start for start, _ in spans]
        elements: list[list[Element]] = [[] for _ in spans]
        markers: list[list[Marker]] = [[] for _ in spans]
        kept: list[list[Kept]] = [[] for _ in spans]
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
        for item in self.kept:
            k = bisect_left(ends, item.end)
            kept[k].append(item._replace(start=item.start - spans[k][0], end=item.end - spans[k][0]))
        return [
            Passage(self.text[start:end], tuple(elements[k]), tuple(markers[k]), tuple(kept[k]))
            for k, (start, end) in enumerate(spans)
        ]

    def without_placeholders(self) -> "Passage":
        """The same passage with each placeholder as a marker, which the model does not see."""
        passage = self
        for item in reversed(self.kept):
            passage = passage._without(item)
        return replace(passage, markers=_merged(passage.markers))

    def with_words(self, words: Sequence[str]) -> "Passage":
        """The same passage with a word in place of each placeholder; those that stand for no word are markers."""
        passage, rest = self, list(words)
        numbers = [i for i, item in enumerate(self.kept) if item.kind != "mark"]
        chosen = dict(zip(numbers, rest, strict=False))
        for i in reversed(range(len(self.kept))):
            item = passage.kept[i]
            if i in chosen:
                passage = passage.spliced(item, Passage(chosen[i]), item._replace(end=item.start + len(chosen[i])))
            else:
                passage = passage._without(item)
        return passage

    def spliced(self, item: Kept, inner: "Passage", kept: Kept | None = None) -> "Passage":
        """The passage with another one in place of something that is kept. kept: what the other one is as a whole"""
        growth = len(inner.text) - (item.end - item.start)

        def moved(position: int) -> int:
            return position + growth if position >= item.end else position

        around = max(
            (i for i, e in enumerate(self.elements) if e.start <= item.start and item.end <= e.end), default=-1
        )
        own = [e._replace(start=moved(e.start), end=moved(e.end)) for e in self.elements]
        added = [e._replace(start=e.start + item.start, end=e.end + item.start) for e in inner.elements]
        order = sorted(range(len(own) + len(added)), key=lambda i: ((own + added)[i].start, -(own + added)[i].end, i))
        number = {old: new for new, old in enumerate(order)} | {NO_ELEMENT: NO_ELEMENT}
        markers = [m._replace(position=moved(m.position), inside=number[m.inside]) for m in self.markers]
        markers += [
            m._replace(position=m.position + item.start, inside=number[around if m.inside < 0 else m.inside + len(own)])
            for m in inner.markers
        ]
        items = [k._replace(start=moved(k.start), end=moved(k.end)) for k in self.kept if k != item]
        items += (
            [kept] if kept else [k._replace(start=k.start + item.start, end=k.end + item.start) for k in inner.kept]
        )
        return Passage(
            self.text[: item.start] + inner.text + self.text[item.end :],
            tuple((own + added)[i] for i in order),
            tuple(sorted(markers, key=lambda marker: marker.position)),
            tuple(sorted(items)),
        )

    def _without(self, item: Kept) -> "Passage":
        """The same passage with something that is kept as a marker; so is an element that holds nothing else."""
        start, end, raw = item.start, item.end, item.raw

        def moved(position: int) -> int:
            return position if position <= start else max(start, position - (end - start))

        text = self.text[:start] + self.text[end:]
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
        before = [
            marker._replace(position=moved(marker.position), inside=numbers.get(marker.inside, inside))
            for marker in self.markers
        ]
        place = bisect_right([marker.position for marker in self.markers], start)
        own = Marker(
            start, raw, inside, item.before, item.after, item.kind != "mark" or EMOJI_SIGN.match(item.raw) is not None
        )
        others = tuple(
            other._replace(start=moved(other.start), end=moved(other.end)) for other in self.kept if other != item
        )
        return Passage(text, tuple(kept), (*before[:place], own, *before[place:]), others)

    def written(self, write: Callable[[str], str]) -> str:
        """The passage as it is written in its own language. write: text between tags"""

        def inside(number: int, start: int, end: int) -> Iterator[str]:
            at = start
            rows = [(e.start, 1, i) for i, e in enumerate(self.elements) if self._parent(i) == number]
            rows += [(m.position, 0, i) for i, m in enumerate(self.markers) if m.inside == number]
            for place, is_element, i in sorted(rows):
                yield self._plain(at, place, write)
                element = self.elements[i] if is_element else None
                at = element.end if element else place
                yield from [element.open, *inside(i, place, at), element.close] if element else [self.markers[i].raw]
            yield self._plain(at, end, write)

        return "".join(inside(NO_ELEMENT, 0, len(self.text)))

    def _parent(self, number: int) -> int:
        own = self.elements[number]
        return max(
            (i for i, e in enumerate(self.elements[:number]) if e.start <= own.start and own.end <= e.end), default=-1
        )

    def _plain(self, start: int, end: int, write: Callable[[str], str]) -> str:
        """A part of the text with what is kept as it is written."""
        parts, at = list[str](), start
        for item in self.kept:
            if start <= item.start and item.end <= end:
                parts += [write(self.text[at : item.start]), item.raw]
                at = item.end
        return "".join([*parts, write(self.text[at:end])])


def parse(text: str, markup: MarkupName) -> list[str | Passage]:
    """The passages of a text, and as they are written the tags between them."""
    if markup == "none":
        return [Passage(text)]
    whole, breaks = _read(text, markup)
    places = [-1, *(place for place, _ in breaks), len(whole.text)]
    raws = [*(raw for _, raw in breaks), ""]
    spans = [(start + 1, end) for start, end in pairwise(places)]
    parts = [
        part
        for passage, raw in zip(whole.parts(spans), raws, strict=True)
        for part in (*_trimmed(passage), raw)
        if part
    ]
    return _joined_texts(parts)


def plain_passage(text: str, in_plural: bool = False) -> Passage:
    """A text without markup, with its placeholders and messages."""
    kept, at = list[Kept](), 0
    messages = [row for row in _closed_code(text) if row[2] in ("message", "problem")]
    for start, end, kind in [*messages, (len(text), len(text), "")]:
        kept += [_kept(text, *span, text[slice(*span)]) for span in _found(text, at, start, in_plural)]
        kept += [Kept(start, end, text[start:end], "message" if kind == "message" else "problem")] if kind else []
        at = end
    return _with_neighbours(Passage(text, kept=tuple(kept)))


def _trimmed(passage: Passage) -> list[str | Passage]:
    """A passage without the white space around it and its markers, which stands beside it; text if it has no words."""
    if not passage.text.strip():
        return [passage.written(escaped)]
    text, places = passage.text, [marker.position for marker in passage.markers]
    start, end = min([len(text) - len(text.lstrip()), *places]), max([len(text.rstrip()), *places])
    return [text[:start], *passage.parts([(start, end)]), text[end:]]


def _joined_texts(parts: Sequence[str | Passage]) -> list[str | Passage]:
    """Parts of which no two texts follow each other."""
    joined: list[str | Passage] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def written_out(passage: Passage, markup: MarkupName, in_plural: bool = False) -> list[str | Passage]:
    """A passage with messages as the syntax of the first one, and in each of its branches the whole passage with that branch."""
    item = next((item for item in passage.kept if item.kind == "message"), None)
    if item is None or any(item.kind == "problem" for item in passage.kept):
        return [passage]
    if num_texts(passage.kept) > MAX_TEXTS_OF_MESSAGE or (message := message_at(item.raw, 0)) is None:
        return [with_problem(passage, item)]
    parts = list[str | Passage]()
    for literal, branch in zip(message.literals, message.branches, strict=False):
        is_counted = in_plural or message.counts
        inner, breaks = (
            (plain_passage(branch, is_counted), []) if markup == "none" else _read(branch, markup, is_counted)
        )
        others = [k for k in (*passage.kept, *inner.kept) if k.kind == "message" and k != item]
        if message.counts and any(
            other.raw.partition(",")[2].lstrip().startswith(("plural", "selectordinal")) for other in others
        ):
            # Behind another plural's brace, `#` would be that one's number.
            number = f"{{{message.name}, number}}"
            inner = replace(inner, kept=tuple(k._replace(raw=number) if k.raw == "#" else k for k in inner.kept))
            breaks = breaks or ([(0, "")] if message.has_offset else [])
        if breaks:
            return [with_problem(passage, item)]
        parts.append(literal)
        for part in _trimmed(_with_neighbours(passage.spliced(item, inner))):
            parts += [part] if isinstance(part, str) else written_out(part, markup, is_counted)
    return _joined_texts([part for part in (*parts, message.literals[-1]) if part])


def with_problem(passage: Passage, item: Kept) -> Passage:
    """A passage that cannot be translated for something in it."""
    return replace(passage, kept=tuple(k._replace(kind="problem") if k == item else k for k in passage.kept))


def num_texts(kept: Sequence[Kept], depth: int = 0) -> int:
    """The number of texts that the messages of a passage are written out to."""
    total = 1
    for item in kept:
        if item.kind == "message" and (message := message_at(item.raw, 0)) is not None:
            inner = [] if depth > MAX_TEXTS_OF_MESSAGE // 8 else message.branches
            total *= sum(num_texts(_messages(branch), depth + 1) for branch in inner) or 2 * MAX_TEXTS_OF_MESSAGE
    return total


def _messages(text: str) -> list[Kept]:
    return [
        Kept(start, end, text[start:end], "message") for start, end, kind in _closed_code(text) if kind == "message"
    ]


def escaped(text: str) -> str:
    """Text as it is written between tags."""
    return html.escape(text, quote=False)


class TextPiece(NamedTuple):
    """kind: text, open, close, marker, break (which ends a passage), or what is kept; raw: as it is written"""

    kind: str
    raw: str
    name: str = ""


def _read(text: str, markup: MarkupName, in_plural: bool = False) -> tuple[Passage, list[tuple[int, str]]]:
    """A text as one passage, and its breaks: the place of each BLOCK_SIGN and how it is written.

    A tag without its end, or without its beginning, is a marker; so is an element without words, and a number as a superscript.
    """
    pieces = list(pieces_of(text, markup))
    pieces = _with_breaks(pieces, markup)
    entity = HTML_ENTITY if markup == "html" else XML_ENTITY
    ends, closing = _ends(pieces), set[int]()
    words = list(accumulate((_is_text(piece) for piece in pieces), initial=0))  # before each piece
    num_breaks = list(accumulate((piece.kind == "break" for piece in pieces), initial=0))
    outside = _outside(ends, words, num_breaks)
    plain, elements, markers, kept, breaks = "", list[Element](), list[Marker](), list[Kept](), list[tuple[int, str]]()
    texts: list[tuple[int, str, list[int]]] = []
    inside, place = [NO_ELEMENT], 0  # the numbers of the elements around a place
    while place < len(pieces):
        piece, end = pieces[place], ends.get(place, place)
        is_element = words[end] > words[place] and not _is_note(pieces[place : end + 1])
        if place in closing:
            number = inside.pop()
            elements[number] = elements[number]._replace(end=len(plain))
        if piece.kind == "break" or (place in outside and (is_element or end == place)):
            breaks.append((len(plain), piece.raw))
            plain += BLOCK_SIGN
        elif piece.kind == "text":
            own, origins = _plain_text(piece.raw, entity)
            texts.append((len(plain), piece.raw, origins))
            plain += own
        elif piece.kind in ("code", "message", "problem"):
            kept.append(Kept(len(plain), len(plain) + len(STAND_IN), piece.raw, piece.kind))  # type: ignore[arg-type]
            plain += STAND_IN
        elif not is_element and place not in closing:
            end = place if num_breaks[end] > num_breaks[place] else end
            markers.append(Marker(len(plain), _raw(pieces[place : end + 1]), inside[-1], "", ""))
            place = end
        if is_element and not {place, end} <= outside:
            inside.append(len(elements))
            tags = ("" if i in outside else pieces[i].raw for i in (place, end))
            elements.append(Element(len(plain), len(plain), *tags))
            closing.add(end)
        place += 1
    for start, raw, origins in texts:
        for first, last in _found(plain, start, start + len(origins) - 1, in_plural):
            kept.append(_kept(plain, first, last, raw[origins[first - start] : origins[last - start]]))
    passage = Passage(plain, tuple(elements), _merged(markers), tuple(sorted(kept)))
    return _with_neighbours(passage), breaks


def _is_text(piece: TextPiece) -> bool:
    return piece.kind in ("code", "message", "problem") or (piece.kind == "text" and not piece.raw.isspace())


def _outside(ends: Mapping[int, int], words: Sequence[int], num_breaks: Sequence[int]) -> set[int]:
    """The tags of elements over several blocks between which and the next break is no text: they belong to the break.

    ends: of each element; words, num_breaks: how many are before each piece
    """
    outside = set[int]()
    for start, end in ends.items():
        if num_breaks[end] > num_breaks[start]:
            first = bisect_left(num_breaks, num_breaks[start] + 1) - 1
            last = bisect_left(num_breaks, num_breaks[end]) - 1
            outside |= {start} if words[first] == words[start] else set()
            outside |= {end} if words[end] == words[last] else set()
    return outside


def _plain_text(raw: str, entity: re.Pattern[str]) -> tuple[str, list[int]]:
    """A text without entities and soft hyphens, and for each of its characters, and its end, the place in what is written."""
    parts, origins, at = list[str](), list[int](), 0
    for found in (*re.finditer(rf"{SOFT_HYPHEN}|{BLOCK_SIGN}|{entity.pattern}", raw), None):
        end = found.start() if found else len(raw)
        parts.append(raw[at:end])
        origins += range(at, end)
        if found:
            one = html.unescape(found[0]).replace(SOFT_HYPHEN, "").replace(BLOCK_SIGN, " ")
            parts.append(one)
            origins += [end] * len(one)
            at = found.end()
    return "".join(parts), [*origins, len(raw)]


def _found(text: str, start: int, end: int, in_plural: bool = False) -> Iterator[tuple[int, int]]:
    """The placeholders in a part of a text; also the number of a list item at its beginning, and `#` in a plural."""
    at = start
    first = text[:start].rsplit(BLOCK_SIGN, 1)[-1].strip()
    if not first and (number := re.compile(rf"\s*({LIST_NUMBER.pattern})").match(text, start, end)):
        yield number.span(1)
        at = number.end()
    for found in PLACEHOLDER.finditer(text, at, end):
        if in_plural:
            yield from ((at + i, at + i + 1) for i, sign in enumerate(text[at : found.start()]) if sign == "#")
        yield found.span()
        at = found.end()
    if in_plural:
        yield from ((at + i, at + i + 1) for i, sign in enumerate(text[at:end]) if sign == "#")


def _kept(text: str, start: int, end: int, raw: str) -> Kept:
    own = text[start:end]
    return Kept(
        start,
        end,
        raw,
        "mark" if WIDTHLESS.fullmatch(own) or LIST_NUMBER.fullmatch(f"{own} x", 0, len(own)) else "word",
    )


def _with_neighbours(passage: Passage) -> Passage:
    """A passage whose markers and placeholders know the characters that they touch."""
    text = passage.text
    kept = tuple(k._replace(before=text[k.start - 1 : k.start], after=text[k.end : k.end + 1]) for k in passage.kept)
    markers = tuple(
        m._replace(before=text[m.position - 1 : m.position], after=text[m.position : m.position + 1])
        for m in passage.markers
    )
    return replace(passage, kept=kept, markers=markers)


def _merged(markers: Sequence[Marker]) -> tuple[Marker, ...]:
    """Markers of which those that touch are one."""
    merged: list[Marker] = []
    for marker in markers:
        last = merged[-1] if merged else None
        if last and (last.position, last.inside) == (marker.position, marker.inside):
            merged[-1] = last._replace(
                raw=last.raw + marker.raw, after=marker.after, is_word=last.is_word or marker.is_word
            )
        else:
            merged.append(marker)
    return tuple(merged)


def pieces_of(text: str, markup: MarkupName) -> Iterator[TextPiece]:
    """The tags of a text and what stands between them. An element that is not to be translated is a marker."""
    # Of an element that is not to be translated: where it begins, its first tag, its open elements.
    at, hidden, first, names = 0, -1, ("", ""), list[str]()
    closed = {found[1].lower() for found in re.finditer(r"</([\w:.-]+)", text)}
    for start, end, piece, attributes in _tags(text, markup):
        kind, name = piece.kind, piece.name
        if kind == "break" and name.lower() in closed:  # a block that may be hidden
            kind = "close" if piece.raw.startswith("</") else "open"
        if hidden < 0:
            if start > at:
                yield TextPiece("text", text[at:start])
            if kind != "open" or attributes.endswith("/") or not _is_hidden(name, attributes, markup):
                yield piece
                at = end
                continue
            hidden, first = start, (name, f"{attributes}/")
        at = end
        if kind == "open" and len(names) < MAX_NESTED_ELEMENTS:
            names.append(name)
        elif kind == "close" and name in names:
            while names.pop() != name:
                pass
        if not names:
            kind, name = (markup == "xml" and _single_of_pair(*first)) or ("marker", "")
            yield TextPiece(kind, text[hidden:end], name)
            hidden = -1
    if hidden >= 0:
        yield TextPiece("marker", text[hidden:])
    elif at < len(text):
        yield TextPiece("text", text[at:])


def _tags(text: str, markup: MarkupName) -> Iterator[tuple[int, int, TextPiece, str]]:
    """The tags of a text and other code in it: where each starts and ends, and its attributes."""
    code = list(_closed_code(text))
    blank, at = list[str](), 0
    for start, end, _ in code:
        blank += [text[at:start], "X" * (end - start)]
        at = end
    tags = TAG_PATTERNS[markup].finditer("".join([*blank, text[at:]]))
    rows = [(start, end, TextPiece(kind, text[start:end]), "") for start, end, kind in code]
    rows += [(*tag.span(), _tag_piece(tag, text[slice(*tag.span())], markup), tag["attributes"] or "") for tag in tags]
    at = 0
    for row in sorted(rows, key=lambda row: row[:2]):
        if row[0] >= at and row[2].kind != "text":  # not inside another one
            yield row
        at = max(at, row[1])


def _closed_code(text: str) -> Iterator[tuple[int, int, str]]:
    """Comments, declarations, templates and messages: where each starts and ends, and its kind; text where it is plain."""
    at, missing, num_broken = 0, set[str](), 0
    while (found := CLOSED_CODE.search(text, at)) is not None:
        start, at = found.start(), found.end()
        if found["choice"]:
            end = closing_brace(text, start + 1) if num_broken < MAX_BROKEN_MESSAGES else -1
            num_broken += end < 0
            yield start, at if end < 0 else end + 1, "problem"
            at = max(at, end + 1)
        elif found["message"]:
            message = message_at(text, start) if num_broken < MAX_BROKEN_MESSAGES else None
            num_broken += message is None
            at = message.end if message else at
            yield start, at, "message" if message else "problem"
        elif found["whole"]:
            yield start, at, "marker" if found["whole"].startswith("<!") else "code"
        elif found[0] not in missing:
            mark = ENDS[found[0]]
            end = text.find(mark, at)
            if end < 0 and not text.startswith("<?php", start):
                missing.add(found[0])
                continue
            at = len(text) if end < 0 else end + len(mark)
            at += text.startswith("}", at) if mark == "}}" else 0  # {{{x}}}
            yield start, at, _code_kind(text[start:at])


def _code_kind(raw: str) -> str:
    if WIDTHLESS.fullmatch(raw):
        return "marker"
    return "code" if re.search("[<>&]", raw) else "text"


def _tag_piece(found: re.Match[str], raw: str, markup: MarkupName) -> TextPiece:
    """A tag as a piece. found: in a text in which other code is blank"""
    name, attributes = (found["name"] or ""), found["attributes"] or ""
    local = name.lower().rpartition(":")[2]
    if found["code"] is not None:
        return TextPiece("marker", raw)
    if found["cut"] is not None:
        return TextPiece("break", raw)
    if found["bold"]:
        return TextPiece(
            "open" if re.match(r"\*\*\S", found.string[found.start() : found.end() + 1]) else "close", raw, "**"
        )
    if found["link"] or found["link_end"]:
        return TextPiece("open" if found["link"] else "close", raw, "[")
    if found["bb"]:
        return TextPiece("close" if found["bb_close"] else "open", raw, f"[{found['bb']}")
    if found["style"] is not None:
        return TextPiece("close" if found["value"] in ("", "0") else "open", raw, f"\\{found['style']}")
    if (XML_BLOCK if markup == "xml" else BLOCK).fullmatch(local):
        return TextPiece("break", raw, name.lower() if markup == "html" else name)
    if markup == "xml" and (pair := _single_of_pair(local, attributes)):
        return TextPiece(pair[0], raw, pair[1])
    name = name.lower() if markup == "html" else name
    if found["close"]:
        return TextPiece("close", raw, name)
    if attributes.endswith("/") or (markup == "html" and VOID.fullmatch(name)):
        return TextPiece("code" if markup == "xml" and local == "ph" else "marker", raw, name)
    return TextPiece("open", raw, name)


def _single_of_pair(name: str, attributes: str) -> tuple[str, str] | None:
    """Whether a single tag of a translation file opens or closes a pair, and the pair's name; None for any other tag."""
    if not attributes.endswith("/"):
        return None
    own = PAIR_NAME.search(attributes)
    if name == "it":
        return ("open" if OPEN_SIDE.search(attributes) else "close"), "it/"
    for opening, closing in PAIR_TAGS.items():
        if name in (opening, closing):
            return ("open" if name == opening else "close"), f"{opening}/{own[1] if own else ''}"
    return None


def _with_breaks(pieces: Sequence[TextPiece], markup: MarkupName) -> list[TextPiece]:
    """Pieces with a break where tags divide texts that no space divides.

    They do at a tag between a sentence's end and a capital letter; in XML with an unknown vocabulary also at a line break
    between two tags, and where one element ends and another begins.
    """
    result = list[TextPiece]()
    run = list[TextPiece]()  # the tags since the last text
    text = ""
    for piece in pieces:
        if piece.kind == "text" and not piece.raw.isspace():
            result += _divided(text, run, piece.raw, markup)
            result.append(piece)
            run, text = [], piece.raw
        elif piece.kind in ("break", "code", "message", "problem"):
            result += [*run, piece]
            run, text = [], ""
        else:
            run.append(piece)
    return [*result, *run]


def _divided(before: str, run: Sequence[TextPiece], after: str, markup: MarkupName) -> list[TextPiece]:
    """Tags between two texts, with a break if one divides them."""
    tags = [i for i, piece in enumerate(run) if piece.kind in ("open", "close")]
    names = [run[i].name.lower().rpartition(":")[2] for i in tags]
    is_unknown = [not INLINE.fullmatch(name) and name[:1].isalpha() and "/" not in name for name in names]
    if markup == "xml" and any(is_unknown) and any("\n" in piece.raw for piece in run if piece.kind == "text"):
        return [piece._replace(kind="break") if piece.kind == "text" and "\n" in piece.raw else piece for piece in run]
    is_spaced = before[-1:].isspace() or after[:1].isspace() or any(piece.kind == "text" for piece in run)
    if not before or is_spaced or not tags:
        return list(run)
    closes = [i for i in tags if run[i].kind == "close"]
    opens = [i for i in tags if run[i].kind == "open" and (not closes or i > closes[-1])]
    is_sentence = SENTENCE_END.search(before) and after[:1].isalpha() and not after[:1].islower()
    if not is_sentence and not (markup == "xml" and any(is_unknown) and closes and opens):
        return list(run)
    place = opens[0] if opens else closes[-1] + 1
    return [*run[:place], TextPiece("break", ""), *run[place:]]


def _is_hidden(name: str, attributes: str, markup: MarkupName) -> bool:
    """Whether an element is not to be translated."""
    if KEPT_AS_IT_IS.search(attributes):
        return True
    return bool(NO_TEXT.fullmatch(name) if markup == "html" else name in ("bpt", "ept", "it"))


def _is_note(pieces: Sequence[TextPiece]) -> bool:
    """Whether an element is a raised or lowered number or sign, such as that of a footnote."""
    is_raised = re.fullmatch("su[bp]|su(?:per|b)script", pieces[0].name.lower())
    return bool(is_raised) and not any(map(str.isalpha, "".join(piece.raw for piece in pieces if piece.kind == "text")))


def _ends(pieces: Sequence[TextPiece]) -> dict[int, int]:
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
