"""Parses text with tags into blocks of plain text with elements and markers (`Passage`), and the tags between them."""

import html
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Final

from nmt.extensions.texts.passages import NO_ELEMENT, Element, Kept, Marker, Passage, escaped, joined_markers
from nmt.extensions.texts.passes.options import MarkupName
from nmt.extensions.texts.placeholders import PLACEHOLDER, WIDTHLESS
from nmt.extensions.texts.tags import MAX_NESTED_ELEMENTS, TextPiece, closed_code, pieces_of, with_breaks

BLOCK_SIGN: Final = "\x1e"  # represents a block's tag in plain text
STAND_IN: Final = "Xxxxx"  # represents code in plain text
SOFT_HYPHEN: Final = "\u00ad"
XML_ENTITY: Final = re.compile(r"&(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});")
HTML_ENTITY: Final = re.compile(
    r"&(?:[A-Za-z][A-Za-z0-9]{1,31};?|#\d{1,7}(?!\d);?|#[xX][0-9a-fA-F]{1,6}(?![0-9a-fA-F]);?)"
)
LIST_NUMBER: Final = re.compile(r"(?:[(\[]?(?:\d{1,3}|[a-zA-Z]|[ivx]{2,5})[.)\]]|[-*•–—·▪◦‣])(?=\s+\S)")
FIRST_LIST_NUMBER: Final = re.compile(rf"\s*({LIST_NUMBER.pattern})")
# Elements with superscript or subscript text. Without letters, they are notes, such as a footnote mark.
NOTE_TAG: Final = re.compile("su[bp]|su(?:per|b)script", re.IGNORECASE)


def parse(text: str, markup: MarkupName) -> list[str | Passage]:
    """Split a text into passages and the tags between them, which stay as they are written."""
    if markup == "none":
        return [Passage(text)]
    whole, breaks = read_passage(text, markup)
    places = [-1, *(place for place, _ in breaks), len(whole.text)]
    raws = [*(raw for _, raw in breaks), ""]
    spans = [(start + 1, end) for start, end in pairwise(places)]
    parts = [
        part
        for passage, raw in zip(whole.parts(spans), raws, strict=True)
        for part in (*parts_of_block(passage), raw)
        if part
    ]
    return joined_texts(parts)


def plain_passage(text: str, in_plural: bool = False) -> Passage:
    """A text without markup as a passage, with its placeholders and messages."""
    kept, at = list[Kept](), 0
    messages = [row for row in closed_code(text) if row[2] in ("message", "problem")]
    begins_line = _begin_lines(text, [0, *(end for _, end, _ in messages)])
    for (start, end, kind), begins in zip([*messages, (len(text), len(text), "")], begins_line, strict=True):
        kept += [_kept(text, *span, text[slice(*span)]) for span in _found(text, at, start, begins, in_plural)]
        kept += [Kept(start, end, text[start:end], "message" if kind == "message" else "problem")] if kind else []
        at = end
    return Passage(text, kept=tuple(kept)).with_neighbours()


def parts_of_block(passage: Passage) -> list[str | Passage]:
    """Separate a passage, including its markers, from the white space around it. A passage without words becomes text."""
    if not passage.text.strip():
        return [passage.written(escaped)]
    text, places = passage.text, [marker.position for marker in passage.markers]
    start, end = min([len(text) - len(text.lstrip()), *places]), max([len(text.rstrip()), *places])
    return [text[:start], *passage.parts([(start, end)]), text[end:]]


def joined_texts(parts: Sequence[str | Passage]) -> list[str | Passage]:
    """The parts, with adjacent texts joined."""
    joined: list[str | Passage] = []
    for is_text, group in groupby(parts, key=lambda part: isinstance(part, str)):
        run = list(group)
        joined += ["".join(map(str, run))] if is_text else run
    return joined


def read_passage(text: str, markup: MarkupName, in_plural: bool = False) -> tuple[Passage, list[tuple[int, str]]]:
    """Read a text as one passage. Also returns its breaks: position and original form of each BLOCK_SIGN.

    Unpaired tags, elements without words, and superscript numbers become markers.
    """
    pieces = list(pieces_of(text, markup))
    pieces = with_breaks(pieces, markup)
    entity = HTML_ENTITY if markup == "html" else XML_ENTITY
    ends, closing = _ends(pieces), set[int]()
    words = list(accumulate((_is_text(piece) for piece in pieces), initial=0))  # number of words before each piece
    letters = list(accumulate((piece.kind == "text" and _has_letter(piece.raw) for piece in pieces), initial=0))
    num_breaks = list(accumulate((piece.kind == "break" for piece in pieces), initial=0))
    outside = _outside(ends, words, num_breaks)
    plain, elements, markers, kept, breaks = "", list[Element](), list[Marker](), list[Kept](), list[tuple[int, str]]()
    texts: list[tuple[int, str, list[int]]] = []
    inside, place = [NO_ELEMENT], 0  # indices of the open elements
    while place < len(pieces):
        piece, end = pieces[place], ends.get(place, place)
        is_note = bool(NOTE_TAG.fullmatch(piece.name)) and letters[end] == letters[place]
        is_element = words[end] > words[place] and not is_note
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
    begins_line = _begin_lines(plain, [start for start, _, _ in texts])
    for (start, raw, origins), begins in zip(texts, begins_line, strict=True):
        for first, last in _found(plain, start, start + len(origins) - 1, begins, in_plural):
            kept.append(_kept(plain, first, last, raw[origins[first - start] : origins[last - start]]))
    passage = Passage(plain, tuple(elements), joined_markers(markers), tuple(sorted(kept)))
    return passage.with_neighbours(), breaks


def _is_text(piece: TextPiece) -> bool:
    return piece.kind in ("code", "message", "problem") or (piece.kind == "text" and not piece.raw.isspace())


def _outside(ends: Mapping[int, int], words: Sequence[int], num_breaks: Sequence[int]) -> set[int]:
    """The tags that belong to a break: tags of elements that span several blocks, with no text between tag and break.

    ends: see `_ends`
    words, num_breaks: number of words and of breaks before each piece
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
    """The text with decoded entities and without soft hyphens, and the positions in `raw` of its characters and its end."""
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


def _begin_lines(text: str, places: Sequence[int]) -> Iterator[bool]:
    """Whether only white space separates each place from the block sign before it, or from the start. places: in order"""
    at, is_blank = 0, True
    for place in places:
        *blocks, last = text[at:place].rsplit(BLOCK_SIGN, 1)
        at, is_blank = place, (is_blank or bool(blocks)) and not last.strip()
        yield is_blank


def _found(text: str, start: int, end: int, begins_line: bool, in_plural: bool = False) -> Iterator[tuple[int, int]]:
    """Yield the placeholders in a part of a text, including a list number at the start of a line, and `#` in a plural."""
    at = start
    if begins_line and (number := FIRST_LIST_NUMBER.match(text, start, end)):
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


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))


def _ends(pieces: Sequence[TextPiece]) -> dict[int, int]:
    """The index of each element's end tag, by the index of its start tag. Unclosed elements are left out."""
    opened: list[int] = []
    names: Counter[str] = Counter()  # names of the open elements
    ends: dict[int, int] = {}
    for place, piece in enumerate(pieces):
        if piece.kind == "open" and len(opened) < MAX_NESTED_ELEMENTS:
            opened.append(place)
            names[piece.name] += 1
        elif piece.kind == "close" and names[piece.name]:
            while pieces[start := opened.pop()].name != piece.name:
                names[pieces[start].name] -= 1
            names[piece.name] -= 1
            ends[start] = place
    return ends


def _raw(pieces: Sequence[TextPiece]) -> str:
    return "".join(piece.raw for piece in pieces)
