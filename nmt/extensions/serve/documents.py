"""Translates documents for the protocols: every format of `nmt translate`, and plain text."""

import asyncio
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Final, NamedTuple

from nmt import registry
from nmt.errors import ResourceError, UserError
from nmt.extensions.documents.document import decoded
from nmt.extensions.serve.calls import Upload
from nmt.extensions.serve.models import ServedModel, in_thread
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.service import Service
from nmt.extensions.texts.glossary import Glossary
from nmt.extensions.texts.text_steps import TextSettings
from nmt.formats.base import LINES, Document, Languages, format_of, open_format
from nmt.options import options_of
from nmt.text.context import DocumentLines
from nmt.translate.line_warnings import LineWarnings
from nmt.translate.requests import Request, in_context
from nmt.translate.results import TRUNCATED, TRUNCATED_TEXT, Translation

WINDOW_TEXTS: Final = 64  # texts to translate at a time; between them, other requests get their turn
SAMPLE_CHARACTERS: Final = 2000  # what the detection of the language reads
UNREAD: Final = "unread"  # format of the documents that nmt cannot read
MAX_WARNINGS: Final = 100  # warnings to keep per document
HINTS: Final = re.compile(r" \(((?:[^()]|\([^()]*\))*)\)$")  # in parentheses at the end of an error
PAUSES: Final = (1, 2, 4, 8, 16, 30, 30, 30)  # seconds to wait if the queue of the model is full


class TranslatedDocument(NamedTuple):
    """A document after its translation.

    language: code of the source language
    characters: number of characters in its texts
    report: how many texts were translated, and why others were not; empty if they are not counted
    warnings: the first warnings about its texts
    """

    content: bytes
    language: str
    characters: int
    report: str
    warnings: list[str]


class TextDocument:
    """A plain text, whose lines are translated one by one."""

    def __init__(self, content: bytes, place: str) -> None:
        """Raises InputError for text in an unknown encoding. place: its name in messages"""
        text, self._encoding = decoded(content, place, "text")
        self._lines = text.split("\n")

    def texts(self, _: Languages) -> list[str]:
        return self._lines

    def write(self, translations: Sequence[Translation], warnings: LineWarnings) -> None:
        warnings.add_translations(translations)
        pairs = zip(self._lines, translations, strict=True)
        self._lines = [line if translation.error else translation.text for line, translation in pairs]

    def content(self) -> bytes:
        return self._encoding.written("\n".join(self._lines))


class KeptWarnings(LineWarnings):
    """Warnings for the client. They quote its texts, which the server does not log."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.messages: list[str] = []

    def add(self, kind: str, position: object, message: str) -> None:
        if len(self.messages) < MAX_WARNINGS:
            self.messages.append(f"{self.place}:{position}: {message}")


def document_endings() -> list[str]:
    """The file name endings of the documents that can be translated, except plain text."""
    tables = registry.declared("format", "endings")
    formats = {kind: endings for table in tables for kind, endings in table.items() if kind != UNREAD}
    return [ending for endings in formats.values() for ending in endings]


async def translate_document(
    service: Service,
    upload: Upload,
    source: str | None,
    target: str,
    glossary: Glossary | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> TranslatedDocument:
    """Translate a document. Raises ProblemError if it cannot be read or translated.

    source: None detects the language of the document
    progress: receives the share of the texts that have been translated, from 0 to 1
    """
    if source is None:
        service.models.find(None, None, target)  # raises ProblemError for an unknown target
        sources = [model for model in service.models.by_name.values() if model.distance(None, target) is not None]
        _, _, texts = await in_thread(partial(_read, upload, sources[0]))
        sample = "\n".join(texts)[:SAMPLE_CHARACTERS]
    else:
        sample = ""
    [choice] = await service.choices([sample], source, target)
    if choice.model is None:
        return TranslatedDocument(upload.content, choice.language, 0, "", [])
    document, settings, texts = await in_thread(partial(_read, upload, choice.model))
    if (characters := sum(map(len, texts))) > (limit := service.options.max_document_characters):
        raise ProblemError(413, f"the document has {characters:,} characters; the limit is {limit:,}")
    translations = await _translations(service, choice.model, texts, replace(settings, glossary=glossary), progress)
    warnings = KeptWarnings(upload.name)
    report = await in_thread(partial(document.write, translations, warnings))
    content = await in_thread(document.content)
    return TranslatedDocument(content, choice.language, characters, str(report or ""), warnings.messages)


def _read(upload: Upload, model: ServedModel) -> tuple[Document, TextSettings, list[str]]:
    """Read a document in the format that its name indicates. Returns it, the settings for its texts, and its texts.

    model: the model that will translate it; the choice of the texts may depend on its languages
    Raises ProblemError.
    """
    format, languages = format_of([upload.name]), Languages(model.source_lang, model.target_lang)
    classes = registry.options_classes("format").values()
    defaults = {option.name: option.default for cls in classes for option in options_of(cls)}
    path = Path(f"document{Path(upload.name).suffix}")
    try:
        if format == LINES:
            text = TextDocument(upload.content, upload.name)
            return text, TextSettings(split=True), text.texts(languages)
        with tempfile.TemporaryDirectory() as folder:
            path = folder / path
            path.write_bytes(upload.content)
            built = open_format(format, SimpleNamespace(**defaults))
            document = built.read(path)
            return document, TextSettings(**built.settings), document.texts(languages)
    except ResourceError:
        raise
    except UserError as error:
        raise ProblemError(400, _without_flags(str(error).replace(str(path), upload.name))) from error


def _without_flags(message: str) -> str:
    """An error without those of its hints that name flags, which clients of the server cannot use."""
    if (found := HINTS.search(message)) is None:
        return message
    hints = [hint for hint in found[1].split("; ") if "--" not in hint]
    return message[: found.start()] + (f" ({'; '.join(hints)})" if hints else "")


async def _translations(
    service: Service,
    model: ServedModel,
    texts: Sequence[str],
    settings: TextSettings,
    progress: Callable[[float], None],
) -> list[Translation]:
    """Translate the texts of a document, a few at a time. A text that would be truncated gets an error instead."""
    requests = in_context(list(map(Request, texts)), DocumentLines(model.pipeline.context))
    found: list[Translation] = []
    for window in _windows(requests, service.options.max_characters):
        found += await _patiently(partial(service.translate_texts, model, window, settings))
        progress(len(found) / len(requests))
    return [Translation(error="it is too long") if _is_truncated(row) else row for row in found]


def _windows(requests: Sequence[Request], max_characters: int) -> Iterator[list[Request]]:
    """Divide requests into groups of limited size."""
    window, characters = list[Request](), 0
    for request in requests:
        length = sum(map(len, (request.text, *(request.context or ()))))
        if window and (len(window) == WINDOW_TEXTS or characters + length > max_characters):
            yield window
            window, characters = [], 0
        window.append(request)
        characters += length
    if window:
        yield window


async def _patiently(translate: Callable[[], Awaitable[list[Translation]]]) -> list[Translation]:
    """Translate, and try again after a pause if the server is busy."""
    for pause in PAUSES:
        try:
            return await translate()
        except ProblemError as problem:
            if problem.status != 503:
                raise
        await asyncio.sleep(pause)
    return await translate()


def _is_truncated(translation: Translation) -> bool:
    return not translation.warnings.keys().isdisjoint((TRUNCATED, TRUNCATED_TEXT))
