"""Documents as lists of units: how their texts are translated, checked and written back.

To add a document format, write a UnitDocument. It reads the bytes of a file and provides

- `units(languages)`: all texts of the document in order, each as a Unit. `Markers` creates its `text`:
  `markers.mark([...])` takes strings and `Tag`s (pairs, single tags, breaks, and words such as fields), and
  `markers.mark_tags(text)` finds tags that are written in the text, such as `<b>` and `{\\i1}`. The text between two
  breaks is translated separately. Breaks are LF, tab, and tags of kind `break`. A unit that is already translated, or
  must not be translated, says so through its `state`; it is counted and kept.
- `Unit.write(translation)`, which receives the translation with the same markers and breaks:
  `markers.restore(translation)` returns text, `markers.restored(translation)` yields the originals one by one.
- `content()`: the bytes of the document. If no unit was written, they are the same as in the file.

Then register a UnitFormat with that document. Its options class in `formats/options.py` lists the file name extensions.
"""

import codecs
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final, Literal, NamedTuple

from msgspec import structs

from nmt.errors import InputError, UserError, quoted
from nmt.extensions.documents.language_codes import two_letter_code
from nmt.extensions.documents.markers import MARKER, TEXT_BREAK, Markers, PeeledLine, from_xml, has_words, peel, to_xml
from nmt.formats.base import Format, Languages
from nmt.log import log
from nmt.storages.streams import open_decompressed
from nmt.text.corpus import BOM, clean
from nmt.translate.line_warnings import LOST_MARKUP, NOT_TRANSLATED, LineWarnings
from nmt.translate.results import BROKEN, Translation

MAX_DOCUMENT_BYTES: Final = 64 << 20  # the document is held in memory as a tree, which is ten times as large
UnitState = Literal["open", "already translated", "not to be translated"]
MAX_DIGITS: Final = 1000  # Python refuses to convert much longer numbers
NO_WORDS: Final = "without words"
IN_PLACE: Final = "translated"
_THOUSANDS: Final = re.compile(r"(?<=\d)[.,'’\s](?=\d{3}(?!\d))")
BYTE_ORDER_MARKS: Final = {
    BOM: "utf-8",
    b"\xff\xfe\0\0": "utf-32-le",
    b"\0\0\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}
# PYTHON_CODECS are Python's encodings that are not charsets. _DECLARATION stands for the ASCII text that names a charset.
PYTHON_CODECS: Final = {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"}
_DECLARATION: Final = '<meta charset="A1">'


@dataclass(frozen=True)
class Unit:
    """A text of a document to translate.

    position: the unit's line, or else its number, for messages
    text: the text with markers; the parts between breaks are translated separately
    markers: the originals of the markers
    write: puts a translation that has the same markers and breaks into the document
    suggest: records a rejected translation next to the unit, with the reason; None if the format has no place for it
    state: whether the unit is open for translation; --retranslate opens units that are already translated
    problem: returns why a translation cannot be written even though it has all markers; empty if it can
    """

    position: object
    text: str
    write: Callable[[str], None]
    markers: Markers = field(default_factory=Markers)
    suggest: Callable[[str, str], None] | None = None
    state: UnitState = "open"
    problem: Callable[[str], str] = lambda _: ""


class UnitDocument(ABC):
    """A document that consists of units. Its texts are XML, with tags in place of markers (see `markers`).

    retranslate: whether existing translations are replaced
    """

    retranslate = False

    @abstractmethod
    def __init__(self, content: bytes, place: str) -> None:
        """Read the content of a file. place: its name in messages"""

    @abstractmethod
    def units(self, languages: Languages) -> list[Unit]:
        """All units, in the order of the document."""

    @abstractmethod
    def content(self) -> bytes:
        """The document with all translations that were written into its units."""

    def texts(self, languages: Languages) -> list[str]:
        """The texts to translate: all parts between breaks that contain words, from all open units."""
        self._counts: Counter[str] = Counter()
        self._pieces: list[tuple[Unit, list[str | PeeledLine]]] = []
        for unit in self.units(languages):
            if unit.state == "not to be translated" or (unit.state != "open" and not self.retranslate):
                self._counts[unit.state] += 1
            elif not has_words(unit.text):
                self._counts[NO_WORDS] += 1
            else:
                pieces = [piece if i % 2 else peel(piece) for i, piece in enumerate(TEXT_BREAK.split(unit.text))]
                self._pieces.append((unit, pieces))
        return [to_xml(text) for _, pieces in self._pieces for text in map(_text_to_send, pieces) if text]

    def write(self, translations: Sequence[Translation], warnings: LineWarnings) -> str:
        """Write each translation that kept its markers and placeholders. Returns a human-readable summary.

        warnings: receives warnings about untranslated units
        """
        found = iter(translations)
        for unit, pieces in self._pieces:
            results = [_marked(next(found)) if _text_to_send(piece) else None for piece in pieces]
            self._counts[_write_unit(unit, pieces, results, warnings)] += 1
        total, written = self._counts.total(), self._counts.pop(IN_PLACE, 0)
        kept = ", ".join(f"{count:,} {reason}" for reason, count in self._counts.items())
        return f"translated {written:,} of {total:,} texts" + f"; {total - written:,} kept unchanged: {kept}" * bool(
            kept
        )


class UnitFormat(Format):
    """A format whose documents consist of units. Texts are split into sentences, and markers are translated as tags.

    document: the class that reads such a document
    """

    settings = MappingProxyType({"split": True, "markup": "xml"})
    document: ClassVar[type[UnitDocument]]

    def read(self, path: Path) -> UnitDocument:
        if not path.is_file():
            raise UserError(f"{quoted(path)}: not a file (if it is in an archive, unpack the archive first)")
        with open_decompressed(path) as file:
            content = file.read(MAX_DOCUMENT_BYTES + 1)
        if len(content) > MAX_DOCUMENT_BYTES:
            raise InputError(f"{quoted(path)}: the document is larger than {MAX_DOCUMENT_BYTES:,} bytes (split it)")
        document = self.document(content, quoted(path))
        document.retranslate = self.options.retranslate
        return document


def _text_to_send(piece: str | PeeledLine) -> str:
    """The part of a piece that the model translates; empty for breaks and for pieces that are copied."""
    return piece.text if isinstance(piece, PeeledLine) and has_words(piece.text) else ""


def _marked(translation: Translation) -> Translation:
    """A translation with its tags turned back into markers."""
    candidates = [structs.replace(candidate, text=from_xml(candidate.text)) for candidate in translation.candidates]
    return structs.replace(translation, candidates=candidates)


def _write_unit(
    unit: Unit, pieces: Sequence[str | PeeledLine], results: Sequence[Translation | None], warnings: LineWarnings
) -> str:
    """Write the translation of a unit, or keep the unit as it is. Returns the outcome. results: None for a copied piece"""
    made = [result for result in results if result is not None]
    for result in made:
        for kind, message in result.warnings.items():
            warnings.add(kind, unit.position, message)
    error = next((result.error for result in made if result.error or not result.text.strip()), None)
    if error is not None:
        warnings.add(NOT_TRANSLATED, unit.position, f"not translated: {error or 'the translation is empty'}")
        return NOT_TRANSLATED
    translation = "".join(
        piece
        if isinstance(piece, str)
        else piece.before + (piece.text if result is None else clean(result.text).strip()) + piece.after
        for piece, result in zip(pieces, results, strict=True)
    )
    if missing := sorted(_numbers(unit.text) - _numbers(translation)):
        warnings.add(BROKEN, unit.position, f"numbers are missing from the translation: {', '.join(missing)}")
    problem = unit.markers.problem(unit.text, translation) or unit.problem(translation)
    if not problem:
        unit.write(translation)
        return IN_PLACE
    kept = (
        "; the translation is kept as a suggestion"
        if unit.suggest
        else f": '{quoted(unit.markers.restore(translation))}'"
    )
    warnings.add(LOST_MARKUP, unit.position, f"left untranslated: {problem}{kept}")
    if unit.suggest:
        unit.suggest(unit.markers.restore(translation), problem)
    return "because the translation lost a tag or placeholder"


def _numbers(text: str) -> set[str]:
    """The numbers with two or more digits in a text, which translations rarely spell out. Thousands separators are ignored."""
    numbers = re.findall(r"\d{2,}", _THOUSANDS.sub("", MARKER.sub(" ", text)))
    return {str(int(number)) for number in numbers if len(number) <= MAX_DIGITS}


def warn_of_language(place: str, noun: str, declared: str | None, model: str) -> None:
    """Warn if a document declares a language other than the model's. noun: source or target"""
    if declared and not is_language(declared, [model, "*all*", ""]):
        log.warn(
            f"{place}: the {noun} language of the document is '{quoted(declared)}', but the model's is '{quoted(model)}'"
        )


def is_language(code: str, wanted: Sequence[str]) -> bool:
    """Whether a code means one of the languages, ignoring country and script: en-GB and eng mean en."""
    return two_letter_code(code) in map(two_letter_code, wanted)


class Encoding(NamedTuple):
    """How the text of a file is encoded. mark: byte order mark"""

    mark: bytes
    name: str

    def written(self, text: str) -> bytes:
        return self.mark + text.encode(self.name)


def decoded(content: bytes, place: str, noun: str) -> tuple[str, Encoding]:
    """Decode a file by its byte order mark, or else as UTF-8. Returns the text and the encoding.

    noun: what messages call the file
    """
    encoding = Encoding(*next((row for row in BYTE_ORDER_MARKS.items() if content.startswith(row[0])), (b"", "utf-8")))
    try:
        return content[len(encoding.mark) :].decode(encoding.name), encoding
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{place}:{line}: not UTF-8 (convert the {noun} from its encoding: `iconv -f WINDOWS-1252 -t UTF-8 FILE`)"
        ) from None


def check_charset(name: str, place: str) -> None:
    """Raise InputError unless the charset that a document declares extends ASCII, in which the declaration was read."""
    try:
        is_known = codecs.lookup(name).name not in PYTHON_CODECS and _DECLARATION.encode(name) == _DECLARATION.encode()
    except (LookupError, ValueError):
        is_known = False
    if not is_known:
        raise InputError(f"{place}: unknown charset '{quoted(name)}' (convert the file to UTF-8, and declare that)")


def line_ends(text: str) -> list[int]:
    """The positions of the line ends in a text. Line `bisect_left(line_ends(text), place) + 1` contains a place."""
    return [found.start() for found in re.finditer("\n", text)]


def damaged(place: str, format: str, reason: object, line: int | None = None) -> UserError:
    """The error for a document that cannot be read. line: number of the faulty line, if known"""
    position = f":{line}" if line is not None else ""
    return InputError(f"{place}{position}: not valid {format}: {quoted(reason)} (fix the file, or export it again)")
