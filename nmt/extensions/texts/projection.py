"""Transfers the tags of a source sentence to its translation, using attention.

Both texts are split into units: words, and single punctuation characters. The attention of a target unit tells which source
units it translates. An element covers the span of target units with most of the attention to its source units, and spans stay
nested. A marker goes to the position that best separates the translations of the units before and after it.
Dimensions: T target tokens, S source tokens, U target units, V source units.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt.extensions.texts.passages import NO_ELEMENT, Kept, Marker, Passage, escaped
from nmt.extensions.texts.sentences import Span
from nmt.extensions.texts.words import LETTERS_ALONE, unit_pattern

Weights = NDArray[np.float64]

THRESHOLD: Final = 0.5  # minimum share of a target unit's attention for it to belong to an element
COPY_WEIGHT: Final = 4.0  # weight of a pair of equal units, relative to a total attention of 1
RESYNC_CHARACTERS, RESYNC_WINDOW = 3, 40  # number of equal characters that end a difference, and range of the search
SMOOTHING: Final = 1e-4  # constant added to each weight
SINKHORN_ITERATIONS: Final = 10
DISTANCE_DECAY: Final = 0.6  # decay of a unit's vote on a marker's position, per unit between them
ALONE: Final = re.compile(f"[{LETTERS_ALONE}]")
NO_SPACE_AFTER: Final = "([{¿¡"  # no space follows these signs
NO_SPACE_BEFORE: Final = ".,;:!?)]}…%"  # no space precedes these signs
QUOTES: Final = "\"'«»„“”‚‘’‹›-–—/"
TOUCHING_FACTOR: Final = 2.0  # factor for the vote of the unit that touches the marker, if the other unit does not


def projected(
    passage: Passage,
    translation: str,
    weights: Weights,
    kept: Sequence[Kept] = (),
    is_spaced: bool = True,
    write: Callable[[str], str] = escaped,
) -> str:
    """Write a translation with the tags of its source.

    weights: (U, V), see `unit_weights`
    kept: placeholders in the translation
    is_spaced: whether the language separates words by spaces
    write: formats text between tags
    """
    target = units(translation, kept)
    root = _tree(passage, source_units(passage))
    _place(root, 0, len(target), _balanced(weights))
    writer = _Writer(translation, target, kept, is_spaced, write)
    writer.write_inside(root)
    return writer.ended()


def units(text: str, kept: Sequence[Kept] = (), cuts: Collection[int] = ()) -> list[Span]:
    """The units of a text.

    kept: items that form one unit each
    cuts: positions at which a unit ends, even inside a word
    """
    spans, places = list[Span](), sorted(cuts)
    edges = [0, *(place for item in kept for place in (item.start, item.end)), len(text)]
    for number, (start, end) in enumerate(pairwise(edges)):
        if number % 2:
            spans.append((start, end))
            continue
        for found in unit_pattern().finditer(text, start, end):
            inner = places[bisect_right(places, found.start()) : bisect_left(places, found.end())]
            spans += pairwise([found.start(), *inner, found.end()])
    return spans


def source_units(passage: Passage) -> list[Span]:
    """The units of a passage. Each tag lies between two of them."""
    places = [place for element in passage.elements for place in (element.start, element.end)]
    return units(passage.text, passage.kept, {*places, *(marker.position for marker in passage.markers)})


def unit_weights(
    passage: Passage,
    translation: str,
    source_pieces: Sequence[str],
    target_pieces: Sequence[str],
    weights: NDArray[Any],
    kept: Sequence[Kept] = (),
) -> Weights:
    """The attention between the units of a translation and of its passage: (U, V), each row a distribution.

    kept: placeholders in the translation
    source_pieces, target_pieces: text that each token adds to its side
    weights: (T, S) attention
    """
    source, target = source_units(passage), units(translation, kept)
    into_source = _shares(passage.text, source, source_pieces)  # S V
    into_target = _shares(translation, target, target_pieces)  # T U
    target_means = into_target / np.maximum(into_target.sum(0), 1e-9)  # weights for the mean over each unit's tokens
    copied = _copied([passage.text[slice(*span)] for span in source], [translation[slice(*span)] for span in target])
    mixed = target_means.T @ (np.asarray(weights, np.float64) @ into_source) + copied
    rows: Weights = mixed / np.maximum(mixed.sum(1, keepdims=True), 1e-9)
    return rows


def _copied(source: Sequence[str], target: Sequence[str]) -> Weights:
    """(U, V) with COPY_WEIGHT for equal units that occur once on each side, such as names, numbers or a full stop."""
    source, target = ([unit.casefold() for unit in side] for side in (source, target))
    weights = np.zeros((len(target), len(source)))
    num_source, num_target = Counter(source), Counter(target)
    places = {unit: i for i, unit in enumerate(source)}
    for i, unit in enumerate(target):
        if num_target[unit] == num_source[unit] == 1:
            weights[i, places[unit]] = COPY_WEIGHT
    return weights


def _shares(text: str, units: Sequence[Span], pieces: Sequence[str]) -> Weights:
    """The share of each token's characters in each unit of a text: (tokens, units)."""
    unit_of = np.full(len(text) + 1, -1)
    for i, (start, end) in enumerate(units):
        unit_of[start:end] = i
    places = [i for i, character in enumerate(text) if not character.isspace()]
    characters = [(i, character) for i, piece in enumerate(pieces) for character in piece if not character.isspace()]
    found = _same_places(
        "".join(text[i] for i in places).casefold(), "".join(character for _, character in characters).casefold()
    )
    shares = np.zeros((len(pieces), len(units)))
    for (token, _), place in zip(characters, found, strict=False):  # casefold may make a text longer
        if 0 <= place < len(places) and (unit := unit_of[places[place]]) >= 0:
            shares[token, unit] += 1
    rows: Weights = shares / np.maximum(shares.sum(1, keepdims=True), 1)
    return rows


def _same_places(text: str, other: str) -> list[int]:
    """For each character of `other`, its position in `text`; where they differ, the position after the last equal character."""
    if text == other:
        return list(range(len(other)))
    places, at = [], 0
    for i, character in enumerate(other):
        if not text.startswith(character, at):
            found = text.find(other[i : i + RESYNC_CHARACTERS], at, at + RESYNC_WINDOW)
            if found < 0:  # an extra character, or one that replaces another
                places.append(min(at, len(text) - 1))
                at += text.startswith(other[i + 1 : i + 2] or " ", at + 1)
                continue
            at = found
        places.append(at)
        at += 1
    return places


def _balanced(weights: Weights) -> Weights:
    """Scale weights so that rows are distributions and columns have equal sums, which gives each source unit its share.

    For example, an article's attention also goes to the noun. Because the noun's own translation takes more of that column,
    the article keeps its own translation. Rows and columns of the squared weights are scaled in turn (Sinkhorn and Knopp, 1967).
    """
    scaled = (weights + SMOOTHING) ** 2
    for _ in range(SINKHORN_ITERATIONS):
        scaled /= scaled.sum(0) * (scaled.shape[1] / max(len(scaled), 1))
        scaled /= scaled.sum(1, keepdims=True)
    return scaled


@dataclass
class _Node:
    """An element, or the whole sentence, in the source and in the translation.

    open, close: its tags; "" if it continues in the previous or next sentence
    source: first source unit, and last + 1
    span: first target unit, and last + 1
    """

    open: str
    close: str
    source: tuple[int, int]
    children: list["_Node"] = field(default_factory=list)
    markers: list[tuple[int, Marker]] = field(default_factory=list)  # with the index of the next source unit
    # Each marker with the index of the next target unit, and whether it comes before everything in the node.
    gaps: list[tuple[int, bool, Marker]] = field(default_factory=list)
    span: tuple[int, int] = (0, 0)

    @property
    def is_whole(self) -> bool:
        return bool(self.open and self.close)


def _tree(passage: Passage, units: Sequence[tuple[int, int]]) -> _Node:
    """The elements as a tree. units: character span of each source unit"""
    starts, ends = [start for start, _ in units], [end for _, end in units]

    def covered(start: int, end: int) -> tuple[int, int]:
        """The units with a character between two positions."""
        return bisect_right(ends, start), bisect_left(starts, end)

    root = _Node("", "", (0, len(units)))
    path = [(0, len(passage.text), root)]
    nodes: list[_Node] = []
    for element in passage.elements:
        while not (path[-1][0] <= element.start and element.end <= path[-1][1]):
            path.pop()
        node = _Node(element.open, element.close, covered(element.start, element.end))
        path[-1][2].children.append(node)
        path.append((element.start, element.end, node))
        nodes.append(node)
    for marker in passage.markers:
        node = root if marker.inside == NO_ELEMENT else nodes[marker.inside]
        following = bisect_left(starts, marker.position)
        node.markers.append((min(max(following, node.source[0]), node.source[1]), marker))
    return root


def _place(node: _Node, start: int, end: int, weights: Weights) -> None:
    """Assign target units to a node and to everything in it. weights: (U, V)"""
    node.span = start, end
    first, last = node.source
    inside = weights[:, first:last].sum(1)
    free = np.zeros(len(weights), bool)
    free[start:end] = True
    shares = {
        id(child): weights[:, child.source[0] : child.source[1]].sum(1) / np.maximum(inside, 1e-9)
        for child in node.children
    }

    best = {id(child): _best_span(child, shares[id(child)], free, start, end) for child in node.children}

    def gain(child: _Node) -> tuple[bool, float]:
        return not child.is_whole, float((shares[id(child)][slice(*best[id(child)])] - THRESHOLD).sum())

    edge = end  # position for elements without a free unit: before any element that continues in the next sentence
    for child in sorted(node.children, key=gain, reverse=True):
        span = best[id(child)]
        if not free[slice(*span)].all():  # an element before it took a unit
            has_place = free.any() or not child.is_whole
            span = _best_span(child, shares[id(child)], free, start, end) if has_place else (edge, edge)
        edge = min(edge, span[0]) if child.open and not child.close else edge
        free[slice(*span)] = False
        _place(child, *span, weights)
    allowed = np.ones(end - start + 1, bool)
    for child in node.children:
        first_inside = 0 if child.close and not child.open else child.span[0] - start + 1
        last_inside = end - start + 1 if child.open and not child.close else child.span[1] - start
        allowed[first_inside:last_inside] = False
    node.gaps = [
        (_gap(node, position, marker, weights, allowed), position == first, marker) for position, marker in node.markers
    ]
    node.children.sort(key=lambda child: child.span)


def _best_span(node: _Node, shares: Weights, free: NDArray[np.bool_], start: int, end: int) -> tuple[int, int]:
    """The contiguous free units with the most attention to an element: the greatest sum of shares minus THRESHOLD.

    An element that continues in another sentence extends to the end of this one. Each element gets at least one unit, if
    one is free.

    shares: (U,) share of each target unit's attention that goes to the element
    """
    values = np.where(free, shares - THRESHOLD, -np.inf)[start:end]
    if not len(values):
        return start, start
    if not (node.open or node.close):
        return start, end
    if not node.is_whole:
        sums = np.cumsum(values[::-1]) if node.open else np.cumsum(values)
        length = int(np.argmax(sums)) + 1 if np.isfinite(sums).any() else 0
        return (end - length, end) if node.open else (start, start + length)
    best, best_span, total, begin = -np.inf, (0, 0), 0.0, 0
    for i, value in enumerate(values.tolist()):
        if total <= 0:
            total, begin = 0.0, i
        total += value
        if total >= best:
            best, best_span = total, (begin, i + 1)
    return start + best_span[0], start + best_span[1]


def _gap(node: _Node, position: int, marker: Marker, weights: Weights, allowed: NDArray[np.bool_]) -> int:
    """The position of a marker among a node's target units, based on the translations of the source units around it.

    position: index of the source unit after the marker
    allowed: whether each gap is outside the elements in the node
    """
    start, end = node.span
    first, last = node.source
    if position in (first, last):
        return start if position == first else end
    units = np.arange(first, last)
    distance = np.where(units < position, position - 1 - units, units - position)
    strength = DISTANCE_DECAY**distance
    touches_before, touches_after = _touches(marker.before), _touches(marker.after)
    if touches_before != touches_after:  # the marker belongs to the adjacent unit
        strength[units == (position - 1 if touches_before else position)] *= TOUCHING_FACTOR
    votes = np.where(units < position, strength, -strength)  # votes for a position after the unit are positive
    sums = np.cumsum(np.append(0, weights[start:end, first:last] @ votes))
    return start + int(np.argmax(np.where(allowed, sums, -np.inf)))


def _touches(character: str) -> bool:
    return bool(character) and not character.isspace()


class _Writer:
    """Writes a translation with tags.

    units: character span of each target unit
    kept: placeholders in the text
    is_spaced: whether the language separates words by spaces
    """

    def __init__(
        self, text: str, units: Sequence[Span], kept: Sequence[Kept], is_spaced: bool, write: Callable[[str], str]
    ) -> None:
        self._text, self._units, self._kept, self._is_spaced, self._write = text, units, kept, is_spaced, write
        self._parts, self._at, self._last, self._next = list[str](), 0, "", 0  # next: index of an item in `kept`

    def write_inside(self, node: _Node) -> None:
        """Write the content of a node."""
        items: list[tuple[int, int, _Node | Marker]] = [(child.span[0], 1, child) for child in node.children]
        items += [(gap, 0 if is_first or gap < node.span[1] else 2, marker) for gap, is_first, marker in node.gaps]
        for gap, _, item in sorted(items, key=lambda row: row[:2]):
            if isinstance(item, Marker):
                if item.is_word:
                    self._write_word(gap, item)
                else:
                    self._write_marker(gap, item, node)
                continue
            self._write_until(self._start(gap) if item.span[0] < item.span[1] else self._end(gap))
            self._parts.append(item.open)
            self.write_inside(item)
            if item.span[0] < item.span[1]:
                self._write_until(self._end(item.span[1]))
            self._parts.append(item.close)

    def ended(self) -> str:
        self._write_until(len(self._text))
        return "".join(self._parts)

    def _start(self, unit: int) -> int:
        return self._units[unit][0] if unit < len(self._units) else len(self._text)

    def _end(self, gap: int) -> int:
        """The end of the unit before a gap."""
        return self._units[gap - 1][1] if gap else 0

    def _write_until(self, place: int) -> None:
        while self._next < len(self._kept) and (item := self._kept[self._next]).end <= place:
            self._next += 1
            if self._at <= item.start:
                self._parts += [self._write(self._text[self._at : item.start]), item.raw]
                self._at, self._last = item.end, item.raw[-1:]
        self._parts.append(self._write(self._text[self._at : place]))
        self._last = self._text[self._at : place][-1:] or self._last
        self._at = max(self._at, place)

    def _write_marker(self, gap: int, marker: Marker, node: _Node) -> None:
        """Write a marker, with white space as in the source. node: node that contains it"""
        first, last = node.span
        before, after = marker.before.isspace(), marker.after.isspace()
        touches_before = _touches(marker.before) and not marker.after.isalnum()
        if first < gap == last or (gap < last and (after or touches_before) and not before and gap > first):
            self._write_until(self._end(gap))
            self._parts.append(" " * (before and gap == last) + marker.raw)
            self._last = " " if before and gap == last else self._last
            return
        spaces = self._text[self._end(gap) : self._start(gap)]
        self._write_until(self._start(gap))
        lacks_space = before and not spaces and _touches(marker.after) and not marker.after.isalnum() and gap > first
        after = after and gap < last and bool(spaces or gap == first)
        self._parts.append(" " * lacks_space + marker.raw + " " * after)

    def _write_word(self, gap: int, marker: Marker) -> None:
        """Write a marker that represents a word, with the spaces that a word needs there."""
        self._write_until(self._end(gap))
        before = self._is_spaced and needs_space(self._last, marker.before, NO_SPACE_AFTER)
        after = self._is_spaced and needs_space(self._text[self._at : self._at + 1], marker.after, NO_SPACE_BEFORE)
        self._parts.append(" " * before + marker.raw + " " * after)
        self._last = " " if after else marker.raw[-1:]


def needs_space(neighbour: str, in_source: str, none_at: str) -> bool:
    """Whether there must be a space between a placeholder and its neighbour.

    neighbour: the adjacent character
    in_source: the character at that position in the source
    none_at: signs that need no space on this side
    """
    if not _touches(neighbour) or neighbour in none_at or ALONE.match(neighbour):
        return False
    if neighbour.isalnum():
        return not in_source.isalnum() or ALONE.match(in_source) is not None
    return not _touches(in_source) if neighbour not in QUOTES else in_source.isspace()
