"""Passages: plain text that is translated as a unit, with the tags, signs and placeholders that are restored in its translation.

An element is a pair of tags. A marker is an item without text to translate, such as a single tag or a comment. Placeholders are
part of the text (`Kept`).
"""

import html
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, groupby
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

    def whole(self, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The spans, with those joined that would divide a kept item, such as a long address. spans: in order, at least one"""
        joined = [spans[0]]
        for start, end in spans[1:]:
            number = bisect_left(self._starts, start) - 1
            if number >= 0 and self.kept[number].end > joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((start, end))
        return joined

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
            around = range(bisect_right(ends, element.start), bisect_left(starts, element.end))
            for k in dict.fromkeys([*around[:1], *around[-1:]]):  # between these parts, the element has no tags
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
        passage = self._without(self.kept)
        return replace(passage, markers=joined_markers(passage.markers))

    def with_words(self, words: Sequence[str]) -> "Passage":
        """The same passage with placeholders replaced by words. Those that represent no word become markers."""
        numbers = [i for i, item in enumerate(self.kept) if item.kind != "mark"][: len(words)]
        passage = self._without([item for i, item in enumerate(self.kept) if i not in numbers])
        for i, word in reversed(list(enumerate(words[: len(numbers)]))):
            item = passage.kept[i]
            passage = passage.spliced(item, Passage(word), item._replace(end=item.start + len(word)))
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
        both = own + added
        order = sorted(range(len(both)), key=lambda i: (both[i].start, -both[i].end, i))
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
            tuple(both[i] for i in order),
            tuple(sorted(markers, key=lambda marker: marker.position)),
            tuple(sorted(items)),
        )

    def _without(self, items: Sequence[Kept]) -> "Passage":
        """The same passage with kept items turned into markers. An element that is empty then becomes part of its first marker.

        items: in the order of the text
        """
        parts, at = list[str](), 0
        for item in items:
            parts.append(self.text[at : item.start])
            at = item.end
        text = "".join([*parts, self.text[at:]])
        ends, lost = [item.end for item in items], [0, *accumulate(item.end - item.start for item in items)]

        def moved(position: int) -> int:
            number = bisect_right(ends, position)
            start = items[number].start if number < len(items) else position
            return min(position, start) - lost[number]

        elements, numbers, raws = list[Element](), {NO_ELEMENT: NO_ELEMENT}, [item.raw for item in items]
        parents, emptied = self._parents(), list[tuple[Element, int]]()
        for i, element in enumerate(self.elements):
            new = element._replace(start=moved(element.start), end=moved(element.end))
            first = bisect_left(ends, element.start + 1)
            if text[new.start : new.end].strip() or first == len(items) or ends[first] > element.end:
                numbers[i] = len(elements)
                elements.append(new)
            else:
                numbers[i] = numbers[parents[i]]
                emptied.append((element, first))
        for element, first in reversed(emptied):
            raws[first] = element.open + raws[first] + element.close
        starts = [element.start for element in self.elements]
        rows = [(m.position, 0, m._replace(position=moved(m.position), inside=numbers[m.inside])) for m in self.markers]
        for item, raw in zip(items, raws, strict=True):
            inside = bisect_right(starts, item.start) - 1
            while inside != NO_ELEMENT and self.elements[inside].end < item.end:
                inside = parents[inside]
            is_word = item.kind != "mark" or EMOJI_SIGN.match(item.raw) is not None
            own = Marker(moved(item.start), raw, numbers[inside], item.before, item.after, is_word)
            rows.append((item.start, 1, own))
        rest = set(self.kept).difference(items)
        kept = (k._replace(start=moved(k.start), end=moved(k.end)) for k in self.kept if k in rest)
        return Passage(
            text, tuple(elements), tuple(marker for _, _, marker in sorted(rows, key=lambda row: row[:2])), tuple(kept)
        )

    def _parents(self) -> list[int]:
        """The index of the innermost element around each element, or NO_ELEMENT."""
        parents, path = list[int](), list[int]()
        for i, element in enumerate(self.elements):
            while path and self.elements[path[-1]].end < element.end:
                path.pop()
            parents.append(path[-1] if path else NO_ELEMENT)
            path.append(i)
        return parents

    def written(self, write: Callable[[str], str]) -> str:
        """The passage in its original form. write: formats text between tags"""
        rows: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # the content of each element
        for i, (element, parent) in enumerate(zip(self.elements, self._parents(), strict=True)):
            rows[parent].append((element.start, 1, i))
        for i, marker in enumerate(self.markers):
            rows[marker.inside].append((marker.position, 0, i))

        def inside(number: int, start: int, end: int) -> Iterator[str]:
            at = start
            for place, is_element, i in sorted(rows[number]):
                yield self._plain(at, place, write)
                element = self.elements[i] if is_element else None
                at = element.end if element else place
                yield from [element.open, *inside(i, place, at), element.close] if element else [self.markers[i].raw]
            yield self._plain(at, end, write)

        return "".join(inside(NO_ELEMENT, 0, len(self.text)))

    def _plain(self, start: int, end: int, write: Callable[[str], str]) -> str:
        """A part of the text, with kept items in their original form."""
        parts, at = list[str](), start
        for number in range(bisect_left(self._starts, start), len(self.kept)):
            item = self.kept[number]
            if item.end > end:
                break
            parts += [write(self.text[at : item.start]), item.raw]
            at = item.end
        return "".join([*parts, write(self.text[at:end])])

    @cached_property
    def _starts(self) -> list[int]:
        return [item.start for item in self.kept]


def escaped(text: str) -> str:
    """Escape text that stands between tags."""
    return html.escape(text, quote=False)


def joined_markers(markers: Sequence[Marker]) -> tuple[Marker, ...]:
    """The markers, with adjacent ones joined."""
    runs = [list(run) for _, run in groupby(markers, key=lambda marker: (marker.position, marker.inside))]
    return tuple(
        run[0]._replace(
            raw="".join(marker.raw for marker in run),
            after=run[-1].after,
            is_word=any(marker.is_word for marker in run),
        )
        for run in runs
    )
