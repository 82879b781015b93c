"""Checks that a translation keeps all placeholders, and rewrites difficult texts for the model.

The model first gets placeholders as they are written. If the translation lacks one, the model gets a code or a name instead,
which models tend to copy. As a last resort the placeholder is removed, and put back next to its neighbours.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from nmt.extensions.texts.passages import Kept, Passage
from nmt.extensions.texts.placeholders import LOOSE, PLACEHOLDER
from nmt.extensions.texts.projection import NO_SPACE_AFTER, NO_SPACE_BEFORE, needs_space

SIGN: Final = re.compile(r"[^\w\s{}%]+")
COPIED_CODES: Final = tuple(f"X{number}" for number in range(1, 10))
COPIED_NAMES: Final = ("Anna", "Paul", "Emma", "Oskar", "Maria", "Peter", "Julia", "Thomas", "Laura")


def ways_to_ask(passage: Passage, can_place: bool) -> list[Passage]:
    """The forms in which a passage may be passed to a model, best first.

    can_place: whether attention can tell where to put items that the model has not seen
    """
    ways = [passage] if all(item.kind in ("word", "mark") for item in passage.kept) else []
    num_words = sum(item.kind != "mark" for item in passage.kept)
    for words in (COPIED_CODES, COPIED_NAMES) if num_words else ():
        new = [word for word in words if word not in passage.text][:num_words]
        ways += [passage.with_words(new)] if len(new) == num_words else []
    if passage.kept:
        ways.append(passage.without_placeholders())
    return [way for way in ways if can_place or _is_placed(way)]


def _is_placed(passage: Passage) -> bool:
    """Whether each marker is at an end of the text or may be anywhere."""
    first, last = len(passage.text) - len(passage.text.lstrip()), len(passage.text.rstrip())
    between = [m for m in passage.markers if first < m.position < last]
    return all(LOOSE.fullmatch(marker.raw) or SIGN.fullmatch(marker.raw) for marker in between)


def kept_in(passage: Passage, translation: str, is_spaced: bool) -> tuple[str, list[Kept]] | None:
    """A translation with spaces around its kept items, and the moved items. None if any are missing or repeated.

    is_spaced: whether the translation's language separates words by spaces
    """
    numbers: dict[str, list[int]] = defaultdict(list)  # the items with each text
    for i, item in enumerate(passage.kept):
        numbers[passage.text[item.start : item.end]].append(i)
    places, taken = dict[int, tuple[int, int]](), bytearray(len(translation))  # taken: 1 for each character of an item
    for text in sorted(numbers, key=len, reverse=True):
        spans = [span for span in _spans(text, translation) if 1 not in taken[slice(*span)]]
        if len(spans) != len(numbers[text]):
            return None
        places |= dict(zip(numbers[text], spans, strict=True))
        for start, end in spans:
            taken[start:end] = b"\1" * (end - start)
    others = [found.span() for found in PLACEHOLDER.finditer(translation)] if passage.kept else []
    if any(1 not in taken[slice(*span)] for span in others):
        return None  # the translation has a placeholder that the passage lacks
    result, kept, at = "", list[Kept](), 0
    for i, (start, end) in sorted(places.items(), key=lambda row: row[1]):
        item, word = passage.kept[i], passage.kept[i].kind != "mark"
        result += translation[at:start]
        glued = result[-1:].isalnum() or result[-1:] in NO_SPACE_BEFORE
        result += " " * (is_spaced and word and glued and needs_space(result[-1:], item.before, NO_SPACE_AFTER))
        kept.append(item._replace(start=len(result), end=len(result) + end - start))
        result += translation[start:end]
        after = translation[end : end + 1]
        result += " " * (is_spaced and word and after.isalnum() and needs_space(after, item.after, NO_SPACE_BEFORE))
        at = end
    return result + translation[at:], kept


def _spans(text: str, translation: str) -> Iterator[tuple[int, int]]:
    """Yield the positions of a text in a translation. A word matches only as a whole word."""
    starts_word, ends_word = (
        end.isalpha() or end.isdecimal() for end in (text[0], text[-1])
    )  # unlike a superscript number, which may touch a word
    start = translation.find(text)
    while start >= 0:
        end = start + len(text)
        touches_before = starts_word and start > 0 and _is_in_word(translation[start - 1])
        if touches_before or (ends_word and _is_in_word(translation[end : end + 1])):
            end = start + 1
        else:
            yield start, end
        start = translation.find(text, end)


def _is_in_word(character: str) -> bool:
    return character.isalnum() or character == "_"
