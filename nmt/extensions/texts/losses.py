"""Checks that a translation keeps all placeholders, and rewrites difficult texts for the model.

The model first gets placeholders as they are written. If the translation lacks one, the model gets a code or a name instead,
which models tend to copy. As a last resort the placeholder is removed, and put back next to its neighbours.
"""

import re
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
    text = passage.text
    between = [m for m in passage.markers if text[: m.position].strip() and text[m.position :].strip()]
    return all(LOOSE.fullmatch(marker.raw) or SIGN.fullmatch(marker.raw) for marker in between)


def kept_in(passage: Passage, translation: str, is_spaced: bool) -> tuple[str, list[Kept]] | None:
    """A translation with spaces around its kept items, and the moved items. None if any are missing or repeated.

    is_spaced: whether the translation's language separates words by spaces
    """
    places: dict[int, tuple[int, int]] = {}
    for text in sorted({passage.text[item.start : item.end] for item in passage.kept}, key=len, reverse=True):
        own = [i for i, item in enumerate(passage.kept) if passage.text[item.start : item.end] == text]
        spans = [
            span for span in _spans(text, translation) if not any(_overlap(span, other) for other in places.values())
        ]
        if len(spans) != len(own):
            return None
        places |= dict(zip(own, spans, strict=True))
    others = [found.span() for found in PLACEHOLDER.finditer(translation)] if passage.kept else []
    if any(not any(_overlap(span, other) for other in places.values()) for span in others):
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
    is_word = [
        end.isalpha() or end.isdecimal() for end in (text[:1], text[-1:])
    ]  # unlike a superscript number, which may touch a word
    before, after = r"(?<!\w)" * is_word[0], r"(?!\w)" * is_word[1]
    return (found.span() for found in re.finditer(before + re.escape(text) + after, translation))


def _overlap(span: tuple[int, int], other: tuple[int, int]) -> bool:
    return span[0] < other[1] and other[0] < span[1]
