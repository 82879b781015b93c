"""Passages: plain text that is translated as a unit, with the tags, signs and placeholders that are restored in its translation.

An element is a pair of tags. A marker is an item without text to translate, such as a single tag or a comment. Placeholders are
part of the text (`Kept`).
"""

import html
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from nmt.extensions.texts.placeholders import EMOJI_SIGN

NO_ELEMENT: Final = -1

KeptKind = Literal["word", "mark", "code", "message", "problem"]


class Element(NamedTuple):
    """A pair of tags around some text.

    start, end: character positions in the plain text
    open, close: the tags; "" for a tag in another part
    """

    start: int
    end: int
    open: str
    close: str


class Marker(NamedTuple):
    """An item without text to translate, at a position in the plain text.

    inside: index of the innermost element around it, or NO_ELEMENT
    before, after: the characters before and after the item; "" at the ends of the text
    is_word: whether it represents a word
    """

    position: int
    raw: str
    inside: int
    before: str
    after: str
    is_word: bool = False


class Kept(NamedTuple):
    """Characters of the plain text that represent something that the translation must contain unchanged.

    kind: a word; a mark, which represents no word; code; a message with branches; a problem, which cannot be parsed
    """

    start: int
    end: int
    raw: str
    kind: KeptKind
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class Passage:
    """Plain text that is translated as a unit, with its elements, markers and kept items.

    elements: outer elements first; two elements are either disjoint or nested
    markers, kept: in the order of the text
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
        """Whether there is anything to translate: letters, or a message with letters."""
        return any(map(str.isalpha, self.masked(" "))) or any(item.kind in ("message", "problem") for item in self.kept)

    def masked(self, sign: str = "") -> str:
        """The text with kept items replaced by fillers of the same length.

        sign: character of the filler; by default the filler is a word that no sentence splitter mistakes for an abbreviation
        """
        parts, at = list[str](), 0
        for item in self.kept:
            length = item.end - item.start
            parts += [self.text[at : item.start], sign * length or ("A" + "a" * (length - 1) if length > 1 else "0")]
            at = item.end
        return "".join([*parts, self.text[at:]])

    def parts(self, spans: Sequence[tuple[int, int]]) -> list["Passage"]:
        """Split the passage. If an element spans several parts, its start tag and its end tag are in different parts.

        spans: character spans in order, with white space between them
        """
        ends = [*(end for _, end in spans[:-1]), len(self.text)]  # the last position for markers in each part
        starts = [start for start, _ in spans]
        elements: list[list[Element]] = [[] for _ in spans]
        markers: list[list[Marker]] = [[] for _ in spans]
        kept: list[list[Kept]] = [[] for _ in spans]
        numbers: dict[tuple[int, int], int] = {}  # index of each element in each of its parts
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

    def with_neighbours(self) -> "Passage":
        """The same passage, with the adjacent characters recorded in its markers and placeholders."""
        text = self.text
        kept = tuple(k._replace(before=text[k.start - 1 : k.start], after=text[k.end : k.end + 1]) for k in self.kept)
        markers = tuple(
            m._replace(before=text[m.position - 1 : m.position], after=text[m.position : m.position + 1])
            for m in self.markers
        )
        return replace(self, kept=kept, markers=markers)

    def without_placeholders(self) -> "Passage":
        """The same passage with all placeholders turned into markers, which the model does not see."""
        passage = self
        for item in reversed(self.kept):
            passage = passage._without(item)
        return replace(passage, markers=joined_markers(passage.markers))

    def with_words(self, words: Sequence[str]) -> "Passage":
        """The same passage with placeholders replaced by words. Those that represent no word become markers."""
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
        """The passage with a kept item replaced by another passage. kept: if given, the item that stands for the other passage"""
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
        """The same passage with a kept item turned into a marker, together with any elements that contain nothing else."""
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
        """The passage in its original form. write: formats text between tags"""

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
        """A part of the text, with kept items in their original form."""
        parts, at = list[str](), start
        for item in self.kept:
            if start <= item.start and item.end <= end:
                parts += [write(self.text[at : item.start]), item.raw]
                at = item.end
        return "".join([*parts, write(self.text[at:end])])


def escaped(text: str) -> str:
    """Escape text that stands between tags."""
    return html.escape(text, quote=False)


def joined_markers(markers: Sequence[Marker]) -> tuple[Marker, ...]:
    """The markers, with adjacent ones joined."""
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
