"""Blocks of HTML and Markdown documents, in which tags are part of the text. Everything but the text stays unchanged."""

import html
import re
from collections.abc import Callable, Iterable
from typing import Final

from nmt.extensions.documents.markers import Markers, Tag, with_kept

_TAGS: Final = re.compile(r"<!--(?:(?!<!--).)*?-->|<[^<>]*>", re.DOTALL)


class Written:
    """A part of a document as written, such as a tag. Texts within it, such as attributes, can be replaced."""

    def __init__(self, raw: str, in_translation: str = "") -> None:
        """in_translation: its written form in a translation, if different"""
        self.raw, self.in_translation = raw, in_translation
        self._texts: dict[tuple[int, int], str] = {}  # new texts by position

    def replace(self, start: int, end: int, text: str) -> None:
        """Replace the characters from start to end of `raw` with a text."""
        self._texts[start, end] = text

    def __str__(self) -> str:
        parts, at = [], 0
        for (start, end), text in sorted(self._texts.items()):
            parts += [self.raw[at:start], text]
            at = end
        return "".join(parts) + self.raw[at:]


def _shown(raw: str) -> str:
    return html.unescape(_TAGS.sub("", raw)) if raw.startswith("<") else ""


class Block:
    """A text with tags.

    parts: the text and its tags as written
    text, markers: the text with markers, and the originals of the markers
    """

    def __init__(self, pieces: Iterable[str | Tag], plain: Callable[[str], str]) -> None:
        """pieces: text and tags as written; the original of a tag is a Written. plain: converts written to displayed text"""
        self.markers, listed = Markers(), with_kept(list(pieces))
        self.parts: list[str | Written] = [piece.original if isinstance(piece, Tag) else piece for piece in listed]
        self.text = self.markers.mark([plain(piece) if isinstance(piece, str) else piece for piece in listed])

    @property
    def tags(self) -> list[Written]:
        return [part for part in self.parts if isinstance(part, Written)]

    def written_in(self, translation: str, written: Callable[[str], str]) -> list[str | Written]:
        """The parts of a translation that has this block's markers. written: converts displayed to written text"""
        return [written(part) if kind == "text" else part for kind, part in self.markers.restored(translation)]

    def words_of(self, translation: str) -> str:
        """The text of a translation without tags, including the text of elements that must not be translated."""
        parts = self.markers.restored(translation)
        return "".join(part if kind == "text" else _shown(part.raw) for kind, part in parts)

    def __str__(self) -> str:
        return "".join(map(str, self.parts))
