"""Documents whose tags are written into their text, HTML and Markdown: what is no text stays as it was written."""

import html
import re
from collections.abc import Callable, Iterable
from typing import Final

from nmt.extensions.documents.markers import Markers, Tag, with_kept

_TAGS: Final = re.compile(r"<!--.*?-->|<[^<>]*>", re.DOTALL)


class Written:
    """A part of a document as it is written, such as a tag. Texts within it, such as attributes, may be replaced."""

    def __init__(self, raw: str, in_translation: str = "") -> None:
        """in_translation: how it is written in a translation, if in another way"""
        self.raw, self.in_translation = raw, in_translation
        self._texts: dict[tuple[int, int], str] = {}  # the new ones, by their place

    def replace(self, start: int, end: int, text: str) -> None:
        """Write a text in place of the characters from start to end of `raw`."""
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

    parts: the text and its tags as they are written
    markers, text: the text with markers
    """

    def __init__(self, pieces: Iterable[str | Tag], plain: Callable[[str], str]) -> None:
        """pieces: as they are written; the original of a tag is a Written. plain: makes the text that is shown"""
        self.markers, listed = Markers(), with_kept(list(pieces))
        self.parts: list[str | Written] = [piece.original if isinstance(piece, Tag) else piece for piece in listed]
        self.text = self.markers.mark([plain(piece) if isinstance(piece, str) else piece for piece in listed])

    @property
    def tags(self) -> list[Written]:
        return [part for part in self.parts if isinstance(part, Written)]

    def written_in(self, translation: str, written: Callable[[str], str]) -> list[str | Written]:
        """The parts of a translation with the same markers. written: makes what shows a text"""
        return [written(part) if kind == "text" else part for kind, part in self.markers.restored(translation)]

    def words_of(self, translation: str) -> str:
        """The text of a translation without its tags, and with that of elements that are not to be translated."""
        parts = self.markers.restored(translation)
        return "".join(part if kind == "text" else _shown(part.raw) for kind, part in parts)

    def __str__(self) -> str:
        return "".join(map(str, self.parts))
