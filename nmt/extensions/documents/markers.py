r"""Texts of documents in which numbered markers replace tags, and the check that a translation kept all markers.

Markers are inline elements of XLIFF 1.2 (section 2.4). A pair of tags is written as `<g id="1">...</g>`, a single tag as
`<x id="1"/>`, and a tag that stands for a word, such as a field, as `<ph id="1"/>`. `<br id="1"/>` is a break: the end of a
line, a paragraph, a list item or a cell. A sentence never continues after a break. LF, tab and other control characters are
breaks too. They stay unchanged, as do placeholders such as %s and all other text. Unlike in XML, nothing is escaped.
Pairs are nested. The text between two breaks may contain one half of a pair whose other half is elsewhere in the text.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple

from nmt.errors import quoted
from nmt.extensions.texts.messages import MESSAGE_START, message_at
from nmt.extensions.texts.passages import escaped
from nmt.extensions.texts.placeholders import PLACEHOLDER, has_letters
from nmt.extensions.texts.tags import BLOCK, ENDS, KEPT_AS_IT_IS

# The pattern has one group, so `split` returns literal text at even positions and markers at odd ones.
MARKER: Final = re.compile(r'(<g id="\d{1,9}">|</g>|<(?:x|ph|br) id="\d{1,9}"/>)')
TEXT_BREAK: Final = re.compile(r'(<br id="\d{1,9}"/>|[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+)')
CLOSING: Final = "</g>"
WRITTEN_TAG: Final = re.compile(
    r"(?P<template>\{\{[^{}]*\}\}|\{[\w.$ ]*\|[^{}]*\})"  # a template counts as text, not as a tag
    r"|<(?P<close>/?)(?P<name>[A-Za-z][\w:.-]*|\d{1,3}(?=/?>))(?:\s[^<>]*+|/?)>"  # HTML tags; <0> comes from react-i18next
    r"|\{\\(?P<style>[a-zA-Z]*+)(?P<value>[^{}\s]*+)\}"  # subtitle tags: {\i1}
    r"|<!--|<!\[CDATA\[|<\?|<![A-Za-z][^<>]*>"  # `found_tags` finds the ends of the first three
    # A line break written as \n, except within a path.
    r"|(?<!\b[A-Za-z]:)(?<=[.!?:;,>])\\[nrtN]|\\[nrtN](?=[A-Z\W]|\Z)"
    r"|(?<=[\w.!?)}])\s?\|\s?(?=[\w{\[(])"  # separates plural forms in Vue and Laravel
    r"|(?<=[.!?])&nbsp;(?=[A-Z])",  # &nbsp; used as the space between sentences
    re.DOTALL,
)
# Spaces, bullets, arrows, musical notes and emoji around the words of a line. Few models know them.
_SYMBOLS: Final = r"[\s·•‣⁃∙\u2190-\u21ff\u25a0-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\ufe0e\ufe0f\u200d]"
EDGE: Final = re.compile(rf"{_SYMBOLS}*")
# HTML tags that are breaks even without a partner.
SINGLE_BREAK: Final = re.compile("br|dd|dt|hr|li|p|t[dhr]", re.IGNORECASE)
RAISED: Final = re.compile("su[bp]", re.IGNORECASE)
BLOCK_NAME: Final = re.compile(BLOCK.pattern, re.IGNORECASE)

MAX_NESTED_MESSAGES: Final = 20  # the branches of deeper messages are not divided

TagKind = Literal["open", "close", "alone", "word", "break"]
PartKind = Literal["text", "open", "close", "alone"]


class Tag(NamedTuple):
    """A tag that a format finds between the words of a text.

    original: a str that is written in the text, or an object of the format, such as an XML element
    kind: `alone` is invisible, `word` stands for a word, and `break` ends a sentence
    name: the opening and the closing tag of a pair have the same name
    """

    original: Any
    kind: TagKind
    name: str = ""


class TagPair(NamedTuple):
    """The originals of the two tags of a pair."""

    opening: Any
    closing: Any


class Markers:
    """The originals of the markers in one text. Marker i stands for item i - 1.

    An original is a str, an object of the format, or a TagPair of these. If the original of a pair is not a TagPair, it is an
    element that contains the pair's text.
    """

    def __init__(self) -> None:
        self.originals: list[Any] = []

    def alone(self, original: object, kind: TagKind = "alone") -> str:
        """A marker for a single tag, a word or a break."""
        self.originals.append(original)
        name = {"word": "ph", "break": "br"}.get(kind, "x")
        return f'<{name} id="{len(self.originals)}"/>'

    def opening(self, original: object) -> str:
        """The opening marker of a pair; CLOSING ends it."""
        self.originals.append(original)
        return f'<g id="{len(self.originals)}">'

    def mark(self, pieces: Sequence[str | Tag]) -> str:
        """Join texts and tags into a text with markers. Opening and closing tags without a partner become single tags."""
        partners = _partners([(piece.kind, piece.name) if isinstance(piece, Tag) else ("", "") for piece in pieces])
        marked = []
        for place, piece in enumerate(pieces):
            if isinstance(piece, str):
                marked.append(piece)
            elif place in partners and BLOCK_NAME.fullmatch(piece.name):
                marked.append(self.alone(piece.original, "break"))
            elif place not in partners:
                marked.append(self.alone(piece.original, piece.kind))
            elif piece.kind == "open":
                closing = pieces[partners[place]]
                assert isinstance(closing, Tag)
                marked.append(self.opening(TagPair(piece.original, closing.original)))
            else:
                marked.append(CLOSING)
        return "".join(marked)

    def mark_tags(self, text: str) -> str:
        """Replace the HTML tags that are written in a text with markers."""
        return self.mark(written_tags(text))

    def original(self, marker: str) -> Any:
        """The original of an opening or single marker; None if the number is unknown."""
        number = int(marker.split('"')[1])
        return self.originals[number - 1] if 0 < number <= len(self.originals) else None

    def restored(self, text: str) -> Iterator[tuple[PartKind, Any]]:
        """The parts of a text with markers in order: text, written tags and other originals."""
        opened: list[Any] = []
        for index, piece in enumerate(MARKER.split(text)):
            if index % 2 == 0:
                yield "text", piece
                continue
            kind: PartKind
            if piece == CLOSING:
                original = part = opened.pop() if opened else TagPair("", "")
                kind = "close"
            else:
                original = part = self.original(piece)
                kind = "open" if piece.startswith("<g") else "alone"
                opened += [original] if kind == "open" else []
            if isinstance(original, TagPair):
                part = original.closing if kind == "close" else original.opening
                kind = "alone"
            yield ("text" if isinstance(part, str) else kind), part

    def restore(self, text: str) -> str:
        """Replace markers with their written tags. Originals that are XML elements are omitted."""
        return "".join(part for kind, part in self.restored(text) if kind == "text")

    def problem(self, source: str, translation: str) -> str:
        """The problem with a translation's markers and placeholders, such as a missing one; empty if there is none."""
        given, found = _parts_to_keep(source), _parts_to_keep(translation)
        for words, parts in (("lacks", given - found), ("repeats or adds", found - given)):
            if parts:
                names = ", ".join(self._name(part) for part in parts if part != CLOSING or len(parts) == 1)
                return f"the translation {words} {quoted(names)}"
        depth = 0
        for marker in MARKER.findall(translation):
            depth += (marker[1] == "g") - (marker == CLOSING)
            if depth < 0:
                return "the translation closes a tag before opening it"
        return ""

    def _name(self, part: str) -> str:
        original = self.original(part) if MARKER.fullmatch(part) and part != CLOSING else None
        original = original.opening if isinstance(original, TagPair) else original
        return original if isinstance(original, str) else part


def written_tags(text: str) -> list[str | Tag]:
    """Split a text into the tags that are written in it and the text between them."""
    pieces: list[str | Tag] = []
    end = 0
    for first, last, found in found_tags(text):
        if found["template"]:
            continue
        pieces += [text[end:first], _written_tag(text[first:last], found)]
        end = last
    pieces.append(text[end:])
    return with_kept([piece for piece in pieces if piece])


def found_tags(text: str) -> Iterator[tuple[int, int, re.Match[str]]]:
    """Yield the start, the end and the match of each written tag. The match of a comment contains only its start mark."""
    at, missing = 0, set[str]()  # missing: start marks without an end mark after them
    while (found := WRITTEN_TAG.search(text, at)) is not None:
        start, at = found.span()
        if (mark := ENDS.get(found[0])) is not None:
            end = -1 if found[0] in missing else text.find(mark, at)
            at = start + 1 if end < 0 else end + len(mark)
            if end < 0:
                missing.add(found[0])
                continue
        yield start, at, found


def with_kept(pieces: Sequence[str | Tag]) -> list[str | Tag]:
    """Turn superscript numbers such as <sup>1</sup> into single tags, and elements that must stay untranslated into word tags."""
    partners = _partners([(piece.kind, piece.name) if isinstance(piece, Tag) else ("", "") for piece in pieces])
    letters = list(accumulate((isinstance(p, str) and any(map(str.isalpha, p)) for p in pieces), initial=0))
    joined: list[str | Tag] = []
    place = 0
    while place < len(pieces):
        piece, end = pieces[place], partners.get(place, place)
        if isinstance(piece, Tag) and end > place:
            is_kept = KEPT_AS_IT_IS.search(str(piece.original))
            if is_kept or (RAISED.fullmatch(piece.name) and letters[place] == letters[end]):
                written = "".join(str(p.original) if isinstance(p, Tag) else p for p in pieces[place : end + 1])
                joined.append(Tag(type(piece.original)(written), "word" if is_kept else "alone"))
                place = end + 1
                continue
        joined.append(piece)
        place += 1
    return joined


def _written_tag(raw: str, found: re.Match[str]) -> Tag:
    name, style = found["name"], found["style"]
    if raw.lstrip()[0] in "\\&|" or (name and SINGLE_BREAK.fullmatch(name)):
        return Tag(raw, "break")
    if style and found["value"] in ("0", ""):
        return Tag(raw, "close", "\\" + style)
    if style:  # {\an8} becomes a single tag, because nothing closes it
        return Tag(raw, "open", "\\" + style)
    if name is None or raw.endswith("/>"):
        return Tag(raw, "alone")
    return Tag(raw, "close" if found["close"] else "open", name)


def code_tag(code: str, original: object, name: str = "") -> Tag | None:
    """The tag for an element that contains HTML code or a placeholder; None if the code is unknown.

    code: `<b>`, `</b>`, `<br/>`, `%s`
    """
    pieces = written_tags(code.strip("\r\t ") if code.strip() else code)
    if code and not code.strip("\r\n\t"):
        return Tag(original, "break")
    tags = [piece for piece in pieces if isinstance(piece, Tag)]
    if any(tag.kind == "break" or (tag.name and BLOCK_NAME.fullmatch(tag.name)) for tag in tags):
        return Tag(original, "break")
    if len(pieces) == 1 == len(tags):
        return Tag(original, tags[0].kind, tags[0].name or name)
    return Tag(original, "word") if not tags and PLACEHOLDER.search(code) else None


def to_xml(text: str) -> str:
    """Convert a text to XML in which the markers are tags."""
    return "".join(piece if i % 2 else escaped(piece) for i, piece in enumerate(MARKER.split(text)))


def from_xml(text: str) -> str:
    """The inverse of `to_xml`."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _partners(tags: Sequence[tuple[str, str]]) -> dict[int, int]:
    """Map the position of each tag in a nested pair to that of its partner. tags: kind and name of each tag"""
    partners: dict[int, int] = {}
    opened: list[int] = []
    names: Counter[str] = Counter()  # names of the open tags
    for place, (kind, name) in enumerate(tags):
        if kind == "open":
            opened.append(place)
            names[name] += 1
        elif kind == "close" and names[name]:
            while tags[start := opened.pop()][1] != name:
                names[tags[start][1]] -= 1
            names[name] -= 1
            partners[start], partners[place] = place, start
    return partners


def _parts_to_keep(text: str) -> Counter[str]:
    """Count markers and placeholders. In messages with branches, placeholders count once, because each branch may repeat them."""
    plain = MARKER.sub(" ", text)
    kept = PLACEHOLDER.findall(_without_braces(plain))
    return Counter([*MARKER.findall(text), *(set(kept) if MESSAGE_START.search(plain) else kept)])


def _without_braces(text: str, depth: int = 0) -> str:
    """Reduce each message in a text to its branches."""
    parts, at = list[str](), 0
    while (found := MESSAGE_START.search(text, at)) and (message := message_at(text, found.start())):
        inner = (
            message.branches
            if depth == MAX_NESTED_MESSAGES
            else [_without_braces(b, depth + 1) for b in message.branches]
        )
        parts += [text[at : found.start()], *inner]
        at = message.end
    return " ".join([*parts, text[at:]])


class PeeledLine(NamedTuple):
    """A line split into the text to translate, and the markers, spaces and symbols before and after it."""

    before: str
    text: str
    after: str


def has_words(text: str) -> bool:
    """Whether there is anything to translate besides markers, placeholders, digits and punctuation."""
    return has_letters(MARKER.sub("", text))


def peel(line: str) -> PeeledLine:
    """Remove single markers, spaces and symbols from the ends of a line, and pairs that enclose it or extend beyond it.

    A marker that stands for a word remains part of the line.
    """
    pieces = MARKER.split(line)
    kinds = [
        "" if i % 2 == 0 else "close" if p == CLOSING else "open" if p[1] == "g" else p[1:3]
        for i, p in enumerate(pieces)
    ]
    partners = _partners([(kind, "") for kind in kinds])
    first, last = 0, len(pieces) - 1

    def is_outside(place: int) -> bool:
        return not pieces[place].strip() or (bool(kinds[place]) and kinds[place] != "ph" and place not in partners)

    while first < last:
        if is_outside(first):
            first += 1
        elif is_outside(last):
            last -= 1
        elif partners.get(first) == last:
            first, last = first + 1, last - 1
        else:
            break
    before, inner, after = pieces[:first], "".join(pieces[first : last + 1]), pieces[last + 1 :]
    if first == last and MARKER.fullmatch(inner):
        return PeeledLine(line, "", "")
    at, rest = (len(found[0]) if (found := EDGE.match(end)) else 0 for end in (inner, inner[::-1]))
    text = inner[at : max(at, len(inner) - rest)]
    return PeeledLine("".join(before) + inner[:at], text, inner[at + len(text) :] + "".join(after))
