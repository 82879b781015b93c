"""Documents of units: how their texts are translated and put back."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final

from msgspec import structs

from nmt.errors import InputError, UserError, quoted
from nmt.extensions.documents.markers import Markers, PeeledLine, from_xml, has_words, peel, to_xml
from nmt.files import read_bytes
from nmt.formats.base import Format, Languages
from nmt.log import log
from nmt.text.corpus import clean
from nmt.text.languages import base_language
from nmt.translate.line_warnings import LOST_MARKUP, NOT_TRANSLATED, LineWarnings
from nmt.translate.results import Translation

MAX_DOCUMENT_BYTES: Final = 64 << 20  # it is held in memory as a tree, which takes ten times as much


@dataclass(frozen=True)
class Unit:
    """A text of a document to translate.

    position: of it in messages, after the document's name: its line, or else its number
    text: with markers; lines that are translated one by one are separated by LF
    markers: the originals of the markers
    write: puts a translation, with the same markers and as many lines, into the document
    suggest: puts a text next to the unit that may not be its translation, with the reason; None: the format has no place
    """

    position: object
    text: str
    write: Callable[[str], None]
    markers: Markers = field(default_factory=Markers)
    suggest: Callable[[str, str], None] | None = None


class UnitDocument(ABC):
    """A document of units, whose texts are XML with tags in place of markers (see `markers`).

    retranslate: whether units with a translation are translated too, and it is replaced
    """

    retranslate = False

    @abstractmethod
    def __init__(self, content: bytes, place: str) -> None:
        """Read a file's content. place: its name in messages"""

    @abstractmethod
    def units(self, languages: Languages) -> list[Unit]:
        """The units to translate."""

    @abstractmethod
    def content(self) -> bytes:
        """The document with the translations that were written into its units."""

    def texts(self, languages: Languages) -> list[str]:
        """The texts of all lines that have words."""
        units = self.units(languages)
        self._lines = [(unit, [peel(line) for line in unit.text.split("\n")]) for unit in units]
        return [to_xml(line.text) for _, lines in self._lines for line in lines if has_words(line.text)]

    def write(self, translations: Sequence[Translation], warnings: LineWarnings) -> None:
        """Write each translation that has kept markers and placeholders. warnings: also receives the units that have not"""
        found = iter(translations)
        for unit, lines in self._lines:
            results = [_marked(next(found)) if has_words(line.text) else None for line in lines]
            _write_unit(unit, lines, results, warnings)


class UnitFormat(Format):
    """A format whose documents have units. Their texts are translated in sentences, their markers as tags.

    document: what reads it
    """

    settings = MappingProxyType({"split": True, "markup": "xml"})
    document: ClassVar[type[UnitDocument]]

    def read(self, path: Path) -> UnitDocument:
        size = path.stat().st_size
        if size > MAX_DOCUMENT_BYTES:
            raise InputError(f"{quoted(path)}: {size:,} bytes; a document may have {MAX_DOCUMENT_BYTES:,} (split it)")
        document = self.document(read_bytes(path), quoted(path))
        document.retranslate = self.options.retranslate
        return document


def _marked(translation: Translation) -> Translation:
    """A translation with markers in place of tags."""
    candidates = [structs.replace(candidate, text=from_xml(candidate.text)) for candidate in translation.candidates]
    return structs.replace(translation, candidates=candidates)


def _write_unit(
    unit: Unit, lines: Sequence[PeeledLine], results: Sequence[Translation | None], warnings: LineWarnings
) -> None:
    """Write the translation of a unit, or keep it untranslated. results: None for a line that is copied"""
    made = [result for result in results if result is not None]
    if not made:  # nothing but digits, punctuation and placeholders
        return
    for result in made:
        for kind, message in result.warnings.items():
            warnings.add(kind, unit.position, message)
    error = next((result.error for result in made if result.error or not result.text), None)
    if error is not None:
        warnings.add(NOT_TRANSLATED, unit.position, f"not translated: {error or 'the translation is empty'}")
        return
    rows = zip(lines, results, strict=True)
    translation = "\n".join(
        line.before + (line.text if result is None else clean(result.text).strip()) + line.after
        for line, result in rows
    )
    problem = unit.markers.problem(unit.text, translation)
    if not problem:
        unit.write(translation)
        return
    kept = "; it is kept as a suggestion" if unit.suggest else f": '{quoted(unit.markers.restore(translation))}'"
    warnings.add(LOST_MARKUP, unit.position, f"left untranslated: {problem}{kept}")
    if unit.suggest:
        unit.suggest(unit.markers.restore(translation), problem)


def warn_of_language(place: str, noun: str, declared: str | None, model: str) -> None:
    """Warn if a document declares another language than that of the model. noun: source or target"""
    if declared and not is_language(declared, [model, "*all*", ""]):
        log.warn(f"{place}: its {noun} language is '{quoted(declared)}', and that of the model is '{quoted(model)}'")


def is_language(code: str, wanted: Sequence[str]) -> bool:
    """Whether a code is of one of the languages, without regard to country and script: en-GB is en."""
    return base_language(code) in map(base_language, wanted)


def damaged(place: str, format: str, reason: object, line: int | None = None) -> UserError:
    """The error for a document that cannot be read. line: where, if known"""
    position = f":{line}" if line is not None else ""
    return InputError(f"{place}{position}: no {format} that can be read: {quoted(reason)} (mend or export it again)")
