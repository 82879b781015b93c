"""SubRip subtitles (.srt). Each cue has a number, a timing line and lines of text; empty lines separate cues."""

import re
import unicodedata
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import ClassVar, Final

from nmt import register
from nmt.extensions.documents.document import Unit, UnitDocument, UnitFormat, damaged, decoded
from nmt.extensions.documents.formats.options import DocumentOptions
from nmt.extensions.documents.markers import Markers, found_tags
from nmt.formats.base import Languages
from nmt.text.languages import UNSPACED_LANGUAGES, base_language

MAX_LINE_CHARACTERS: Final = 42  # maximum per subtitle line, a usual limit among broadcasters
TIME: Final = r"\d+:\d\d:\d\d[,.]\d{1,3}"
TIMING: Final = re.compile(rf"\s*{TIME}\s*-->\s*{TIME}\b")
BROKEN_TIMING: Final = re.compile(r"\s*\d[^-]*-->")
DASH: Final = re.compile(r"\s*+(?:<[^<>]+>)*+\s*+[-–—](?:\s+|(?=\D))")  # marks a change of speaker

# The end of a sentence or a song: the next line does not continue it. Three dots do not end a sentence.
LINE_END: Final = re.compile(r"(?:(?<!\.)[.?!。！？؟।]|[♪♫])[\"'”’»)\]]*(?:<[^<>]+>|\{\\[^{}]*\})*$")


class SrtDocument(UnitDocument):
    """SubRip subtitles. Raises InputError if they are not UTF-8 or a timing line is malformed."""

    name: ClassVar[str] = "SRT"
    first_word: ClassVar[str] = ""  # every file must start with this word
    timing: ClassVar[re.Pattern[str]] = TIMING

    def __init__(self, content: bytes, place: str) -> None:
        text, self._encoding = decoded(content, place, "subtitles")
        if self.first_word and not re.match(rf"{self.first_word}(?=\s|$)", text):
            raise damaged(place, self.name, f"the file does not start with {self.first_word}")
        lines = text.split("\n")  # a CR before LF is kept
        self._cues: list[tuple[int, int]] = []  # first line of each text, and the line after its end
        for number, text in enumerate(lines):
            if self.timing.match(text):
                self._cues.append((number + 1, self._end_of_text(lines, number + 1)))
            elif BROKEN_TIMING.match(text):
                raise damaged(place, self.name, f"the timing line '{text.strip()}' is malformed", number + 1)
        if not self._cues and any(map(str.strip, lines)):
            raise damaged(place, self.name, "the file has no timing line")
        self._blocks = [[line] for line in lines]  # a translation is stored at the first line of its cue

    def units(self, languages: Languages) -> list[Unit]:
        """All cues that have text. Subtitles contain only one language."""
        self._joint = "" if base_language(languages.source) in UNSPACED_LANGUAGES else " "
        return [self._unit(first, end) for first, end in self._cues if first < end]

    def _unit(self, first: int, end: int) -> Unit:
        """The unit of a cue. Its lines are joined, except after the end of a sentence or at a change of speaker."""
        dashes, sentences = [""], [list[str]()]
        for (line,) in self._blocks[first:end]:
            dash = DASH.match(line)
            if sentences[-1] and (dash or LINE_END.search(sentences[-1][-1])):
                dashes.append("")
                sentences.append([])
            if dash:
                dashes[-1], line = dash[0].lstrip(), line[dash.end() :]
            sentences[-1] += [line.strip()] if line.strip() else []
        markers = Markers()
        text = "\n".join(self._marked(self._joint.join(lines), markers) for lines in sentences)
        return Unit(first + 1, text, partial(self._write, first, end, dashes, markers), markers)

    def _write(self, first: int, end: int, dashes: list[str], markers: Markers, translation: str) -> None:
        sentences = self._restored(translation, markers).split("\n")
        wrapped = [line for dash, sentence in zip(dashes, sentences, strict=True) for line in wrap(dash + sentence)]
        ending = "\r" if self._blocks[first][0].endswith("\r") else ""
        self._blocks[first:end] = [[line + ending for line in wrapped], *([] for _ in range(first + 1, end))]

    def _end_of_text(self, lines: list[str], first: int) -> int:
        """The line after the text that starts at line `first`. The text ends before the number and timing of the next cue.

        Empty lines inside the text are part of it; empty lines after it are not.
        """
        end = first
        while end < len(lines) and not self.timing.match(lines[end]):
            end += 1
        if first < end < len(lines) and lines[end - 1].strip().isdigit():
            end -= 1
        while end > first and not lines[end - 1].strip():
            end -= 1
        return end

    def _marked(self, text: str, markers: Markers) -> str:
        """Replace the tags in a text from the file with markers."""
        return markers.mark_tags(text)

    def _restored(self, text: str, markers: Markers) -> str:
        """Replace the markers in a text with the original tags."""
        return markers.restore(text)

    def content(self) -> bytes:
        """The file in its original encoding."""
        return self._encoding.written("\n".join(line for block in self._blocks for line in block))


def wrap(text: str) -> list[str]:
    """Wrap a sentence into as few lines as possible. The lines have similar lengths, at most MAX_LINE_CHARACTERS without tags."""
    words = [piece for word in _words(text) for piece in _split_word(word)]
    lines = _fill(words, MAX_LINE_CHARACTERS)
    width = MAX_LINE_CHARACTERS
    while width > 1 and len(narrower := _fill(words, width - 1)) == len(lines):
        lines, width = narrower, width - 1
    return lines


def _words(text: str) -> list[str]:
    """The words of a text. A space inside a tag does not end a word."""
    groups = groupby(_signs(text), key=str.isspace)
    return ["".join(signs) for is_space, signs in groups if not is_space]


def _signs(text: str) -> Iterator[str]:
    """Yield each tag, and each character outside tags."""
    at = 0
    for start, end, _ in found_tags(text):
        yield from [*text[at:start], text[start:end]]
        at = end
    yield from text[at:]


def _split_word(word: str) -> list[tuple[str, str, int]]:
    """A word, the space before it, and its width. A word that is too long for a line is split into characters.

    Punctuation, combining marks and tags stay with the character before them.
    """
    if _width(word) <= MAX_LINE_CHARACTERS:
        return [(" ", word, _width(word))]
    groups = list[list[str]]()
    for sign in _signs(word):
        if groups and (len(sign) > 1 or unicodedata.category(sign)[0] in "PM"):
            groups[-1].append(sign)
        else:
            groups.append([sign])
    pieces = map("".join, groups)
    return [(" " * (i == 0), piece, _width(piece)) for i, piece in enumerate(pieces)]


def _fill(words: list[tuple[str, str, int]], max_width: int) -> list[str]:
    """Distribute words over lines."""
    lines, width = [list[str]()], 0  # width of the last line
    for space, word, word_width in words:
        if lines[-1] and width + len(space) + word_width > max_width:
            lines.append([])
            width = 0
        space = space if lines[-1] else ""
        lines[-1] += [space, word]
        width += len(space) + word_width
    return list(map("".join, lines))


def _width(text: str) -> int:
    places = [0, *(place for start, end, _ in found_tags(text) for place in (start, end)), len(text)]
    shown = "".join(text[start:end] for start, end in zip(places[::2], places[1::2], strict=True))
    return len(shown) + sum(map("WF".count, map(unicodedata.east_asian_width, shown)))  # a wide character counts as two


@register("format", "srt", DocumentOptions)
class SrtFormat(UnitFormat):
    """SubRip subtitles: translates the text of each cue."""

    document = SrtDocument
