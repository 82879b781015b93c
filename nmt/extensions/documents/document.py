"""A document of a translator: its units, and how they are translated and put back."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from nmt.errors import InputError, UserError, quoted
from nmt.extensions.documents.markers import Markers, PeeledLine, has_words, peel
from nmt.files import read_bytes
from nmt.installation import missing_package
from nmt.log import log
from nmt.text.corpus import clean
from nmt.text.languages import base_language
from nmt.translate.line_warnings import LOST_MARKUP, NOT_TRANSLATED, LineWarnings
from nmt.translate.results import Translation

MAX_DOCUMENT_BYTES: Final = 64 << 20  # it is held in memory as a tree, which takes ten times as much
OPTIONAL_MODULES: Final = ("translate", "lxml")  # of the extra `formats`


class Languages(NamedTuple):
    """The codes of the model's languages: "en", "de"."""

    source: str
    target: str


@dataclass(frozen=True)
class Unit:
    """A text of a document to translate.

    position: of it in messages, after the document's name: its line, or else its number
    text: with markers; lines that are translated one by one are separated by LF
    markers: the originals of the markers
    write: puts a translation, with the same markers and as many lines, into the document
    suggest: puts a text beside the unit that may not be its translation, with the reason; None: the format has no place
    """

    position: object
    text: str
    write: Callable[[str], None]
    markers: Markers = field(default_factory=Markers)
    suggest: Callable[[str, str], None] | None = None


class Document(Protocol):
    """A document that was read whole."""

    def units(self, languages: Languages, retranslate: bool) -> list[Unit]:
        """The units to translate. retranslate: also those that have a translation, which is replaced"""
        ...

    def content(self) -> bytes:
        """The document with the translations that were written into its units."""
        ...


TranslateTexts = Callable[[list[str]], Sequence[Translation]]


def read_document(path: Path, format: str) -> Document:
    """Read a document of a format, by `read` of the file of this folder with its name.

    Raises UserError if its library is missing, InputError if the document is damaged, ArtefactError if it is hostile.
    """
    try:
        reader: Any = importlib.import_module(f"nmt.extensions.documents.{format}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in OPTIONAL_MODULES:
            raise
        raise missing_package(f"--format {format}", "formats", error) from None
    size = path.stat().st_size
    if size > MAX_DOCUMENT_BYTES:
        raise InputError(f"{quoted(path)}: {size:,} bytes; a document may have {MAX_DOCUMENT_BYTES:,} (split it)")
    document: Document = reader.read(read_bytes(path), quoted(path))
    return document


def translate_units(units: Sequence[Unit], translate: TranslateTexts, warnings: LineWarnings) -> int:
    """Translate units in one call, and write each translation that has kept markers and placeholders.

    translate: gives a Translation for each text; see `nmt.extensions.documents.markers` for the form of a text
    warnings: receives those of the translations, and units that stay untranslated
    returns: the number of texts that were translated
    """
    unit_lines = [[peel(line) for line in unit.text.split("\n")] for unit in units]
    texts = [line.text for lines in unit_lines for line in lines if has_words(line.text)]
    translations = iter(translate(texts) if texts else [])
    for unit, lines in zip(units, unit_lines, strict=True):
        results = [next(translations) if has_words(line.text) else None for line in lines]
        _write_unit(unit, lines, results, warnings)
    return len(texts)


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
