"""Texts of documents in which numbered markers stand for tags, and the check that a translation has kept them.

A pair of tags stands in a text as `<g id="1">...</g>` and a single one as `<x id="1"/>`, the generic inline elements of
XLIFF 1.2 (section 2.4). Placeholders such as %s, and everything else, stand in it as they are, without escapes of XML.
Pairs are nested. A line of a text may hold half of a pair, if the other half stands in another line.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

from nmt.errors import quoted
from nmt.extensions.texts.markup import escaped
from nmt.extensions.texts.placeholders import PLACEHOLDER, has_letters

# One group, so that `split` gives literal text at even places, markers at odd ones.
MARKER: Final = re.compile(r'(<g id="\d+">|</g>|<x id="\d+"/>)')
CLOSING: Final = "</g>"
WRITTEN_TAG: Final = re.compile(r"<(/?)([A-Za-z][\w:.-]*)(?:\s[^<>]*)?/?>|\{\\[^{}\s]*\}")  # of HTML, or of subtitles


PartKind = Literal["text", "open", "close", "alone"]


class LiteralTag(NamedTuple):
    """The original of a marker for a tag that a text spells out. closing: empty for a single tag"""

    opening: str
    closing: str


class Markers:
    """The originals that the markers of one text stand for. Marker i stands for item i - 1.

    An original is a LiteralTag, or an object of the format, such as an element of XML.
    """

    def __init__(self) -> None:
        self.originals: list[Any] = []

    def alone(self, original: object) -> str:
        """A marker for a single tag."""
        self.originals.append(original)
        return f'<x id="{len(self.originals)}"/>'

    def opening(self, original: object) -> str:
        """The opening marker of a pair; CLOSING ends it."""
        self.originals.append(original)
        return f'<g id="{len(self.originals)}">'

    def mark_tags(self, text: str) -> str:
        """A text with markers for the tags of HTML that it spells out."""
        tags = list(WRITTEN_TAG.finditer(text))
        partners = _pair(tags)
        pieces, end = [], 0
        for index, tag in enumerate(tags):
            partner = partners.get(index)
            if partner is None:
                marker = self.alone(LiteralTag(tag[0], ""))
            else:
                marker = self.opening(LiteralTag(tag[0], tags[partner][0])) if partner > index else CLOSING
            pieces += [text[end : tag.start()], marker]
            end = tag.end()
        return "".join(pieces) + text[end:]

    def original(self, marker: str) -> Any:
        """The original that an opening or single marker stands for; None for a number that none has."""
        number = int(marker.split('"')[1])
        return self.originals[number - 1] if 0 < number <= len(self.originals) else None

    def restored(self, text: str) -> Iterator[tuple[PartKind, Any]]:
        """The parts of a text with markers: its text and literal tags, and the other originals where they stand."""
        opened: list[Any] = []
        for index, piece in enumerate(MARKER.split(text)):
            if index % 2 == 0:
                yield "text", piece
            elif piece == CLOSING:
                original = opened.pop() if opened else LiteralTag("", "")
                yield ("text", original.closing) if isinstance(original, LiteralTag) else ("close", original)
            else:
                original, is_pair = self.original(piece), piece.startswith("<g")
                opened += [original] if is_pair else []
                is_literal = isinstance(original, LiteralTag)
                yield ("text", original.opening) if is_literal else ("open" if is_pair else "alone", original)

    def restore(self, text: str) -> str:
        """A text with its tags in place of their markers; elements of XML are left out."""
        return "".join(part for kind, part in self.restored(text) if kind == "text")

    def problem(self, source: str, translation: str) -> str:
        """What a translation lacks of the markers and placeholders of its source, or has too often; empty if nothing."""
        given, found = _parts_to_keep(source), _parts_to_keep(translation)
        for words, parts in (("lacks", given - found), ("repeats or invents", found - given)):
            if parts:
                names = ", ".join(self._name(part) for part in parts if part != CLOSING or len(parts) == 1)
                return f"the translation {words} {quoted(names)}"
        depth = 0
        for marker in MARKER.findall(translation):
            depth += (marker[1] == "g") - (marker == CLOSING)
            if depth < 0:
                return "the translation closes a tag before it opens it"
        return ""

    def _name(self, part: str) -> str:
        original = self.original(part) if MARKER.fullmatch(part) and part != CLOSING else None
        return original.opening if isinstance(original, LiteralTag) else part


def to_xml(text: str) -> str:
    """A text as XML with the markers as its tags."""
    return "".join(piece if i % 2 else escaped(piece) for i, piece in enumerate(MARKER.split(text)))


def from_xml(text: str) -> str:
    """The text that `to_xml` has made this XML of."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _pair(tags: list[re.Match[str]]) -> dict[int, int]:
    """The partner of each tag that has one, by place: pairs that are nested."""
    partners: dict[int, int] = {}
    opened: list[int] = []
    names: Counter[str] = Counter()  # of the opened tags
    for index, tag in enumerate(tags):
        closes, name = tag[1], tag[2]
        if name is None or tag[0].endswith("/>"):
            continue
        if not closes:
            opened.append(index)
            names[name] += 1
        elif names[name]:
            while tags[start := opened.pop()][2] != name:
                names[tags[start][2]] -= 1
            names[name] -= 1
            partners[start], partners[index] = index, start
    return partners


def _parts_to_keep(text: str) -> Counter[str]:
    return Counter([*MARKER.findall(text), *PLACEHOLDER.findall(MARKER.sub(" ", text))])


class PeeledLine(NamedTuple):
    """A line of a text without the markers and spaces at its ends, which enclose or precede what is translated."""

    before: str
    text: str
    after: str


def has_words(text: str) -> bool:
    """Whether there is anything to translate besides markers, placeholders, digits and punctuation."""
    return has_letters(MARKER.sub("", text))


def peel(line: str) -> PeeledLine:
    """Take off single markers and spaces at the ends of a line, and pairs that enclose it or have one half outside it."""
    pieces = MARKER.split(line)
    markers = list(WRITTEN_TAG.finditer("".join(pieces[1::2])))
    partners = {2 * i + 1: 2 * j + 1 for i, j in _pair(markers).items()}  # by place among the pieces
    first, last = 0, len(pieces) - 1
    while first < last:
        if not pieces[first].strip() or (first % 2 and first not in partners):
            first += 1
        elif not pieces[last].strip() or (last % 2 and last not in partners):
            last -= 1
        elif partners.get(first) == last:
            first, last = first + 1, last - 1
        else:
            break
    before, inner, after = pieces[:first], "".join(pieces[first : last + 1]), pieces[last + 1 :]
    if first == last and MARKER.fullmatch(inner):
        return PeeledLine(line, "", "")
    text = inner.strip()
    start = len(inner) - len(inner.lstrip())
    return PeeledLine("".join(before) + inner[:start], text, inner[start + len(text) :] + "".join(after))
