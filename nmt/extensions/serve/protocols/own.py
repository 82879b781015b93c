"""Our own protocol, with everything that a search gives: candidates, scores, alignment, constraints."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from msgspec import UNSET, structs
from starlette.responses import Response
from starlette.routing import Route

from nmt.extensions.serve.calls import Call, Fields
from nmt.extensions.serve.events import ERROR_EVENT, EventStream, json_event
from nmt.extensions.serve.messages import (
    CandidateRow,
    Direction,
    DirectionsAnswer,
    EndEvent,
    ErrorAnswer,
    HealthAnswer,
    Problem,
    Text,
    TranslateAnswer,
    TranslateRequest,
    TranslationEvent,
    TranslationRow,
)
from nmt.extensions.serve.models import Details, ServedModel
from nmt.extensions.serve.openapi import Operation, describe
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.scheduler import NumberedTranslation
from nmt.extensions.serve.service import Service
from nmt.extensions.texts.glossary import Glossary
from nmt.extensions.texts.text_steps import TextSettings
from nmt.text.corpus import visible_line
from nmt.translate.requests import Request, cleaned_request
from nmt.translate.results import Candidate, Translation

METRICS_TYPE: Final = "text/plain; version=0.0.4"  # of Prometheus' text format
EVENTS: Final = {"translation": TranslationEvent, "end": EndEvent, ERROR_EVENT: ErrorAnswer}


def error_shape(status: int, message: str) -> ErrorAnswer:
    return ErrorAnswer(Problem(status, message))


def routes(service: Service) -> list[Route]:
    """POST /v1/translate, GET /v1/directions, /health, /metrics, and /openapi.json, which describes them."""

    async def translate(call: Call, _: Fields) -> TranslateAnswer | EventStream:
        asked: TranslateRequest = call.json(TranslateRequest)
        model = service.models.find(asked.model, asked.source, asked.target)
        texts = asked.text if isinstance(asked.text, list) else [asked.text]
        service.check_count(texts)
        settings = _settings(asked)
        keeps_lines = settings.split or settings.markup != "none"
        requests = [_request(text, keeps_lines) for text in texts]
        has_phrases = any(request.phrases for request in requests)
        details = Details(asked.n_best > 1 or asked.word_scores, asked.alignment, has_phrases)
        if asked.stream:
            return EventStream(_events(model, asked, service.stream_texts(model, requests, settings, details)))
        translations = await service.translate_texts(model, requests, settings, details)
        rows = [_row(translation, asked) for translation in translations]
        return TranslateAnswer(model.name, model.source_lang, model.target_lang, rows)

    async def directions(_: Call, __: Fields) -> DirectionsAnswer:
        models = service.models.by_name.values()
        return DirectionsAnswer([Direction(m.name, m.source_lang, m.target_lang, m.is_loaded) for m in models])

    async def health(_: Call, __: Fields) -> HealthAnswer:
        return HealthAnswer()

    async def metrics(_: Call, __: Fields) -> Response:
        return Response(service.metrics.text(), media_type=METRICS_TYPE)

    async def description(_: Call, __: Fields) -> dict[str, Any]:
        return document

    operations = [
        Operation(
            method="POST",
            path="/v1/translate",
            protocol="nmt",
            summary="Translate lines.",
            handler=translate,
            request=TranslateRequest,
            answer=TranslateAnswer,
            events=EVENTS,
            problems=(503,),
        ),
        Operation(
            path="/v1/directions",
            protocol="nmt",
            summary="List the models.",
            handler=directions,
            answer=DirectionsAnswer,
        ),
        Operation(
            path="/health",
            protocol="health",
            summary="Say that the server runs.",
            handler=health,
            answer=HealthAnswer,
            is_open=True,
        ),
        Operation(
            path="/metrics",
            protocol="metrics",
            summary="Give counts for Prometheus.",
            handler=metrics,
            answer=str,
            media_type=METRICS_TYPE,
            is_open=True,
        ),
        Operation(
            path="/openapi.json",
            protocol="openapi",
            summary="Describe this protocol.",
            handler=description,
            answer=dict[str, Any],
            is_open=True,
        ),
    ]
    document = describe(operations, ErrorAnswer, service.options)
    return [
        Route(o.path, service.endpoint(o.protocol, o.handler, error_shape, o.is_open), methods=[o.method])
        for o in operations
    ]


def _settings(asked: TranslateRequest) -> TextSettings:
    """What a request wants to be done to its texts. Raises ProblemError for details that number words of one sentence."""
    glossary = Glossary(asked.glossary) if asked.glossary else None
    settings = TextSettings(asked.split, asked.markup, glossary, asked.repair)
    if (asked.alignment or asked.word_scores) and replace(settings, glossary=None) != TextSettings():
        raise ProblemError(400, "alignment and word_scores do not go with split, markup and repair")
    return settings


def _request(text: str | Text, keeps_lines: bool) -> Request:
    """A text as the search takes it. keeps_lines: whether line breaks in it stay; else they are spaces"""
    if isinstance(text, str):
        text = Text(text)
    line = text.text if keeps_lines else visible_line(text.text)
    return cleaned_request(line, text.prefix, text.phrases, {"avoid": text.avoid}, text.context)


async def _events(
    model: ServedModel, asked: TranslateRequest, translations: AsyncGenerator[NumberedTranslation, None]
) -> AsyncGenerator[bytes, None]:
    """An event for each line, and one for the end."""
    lines = 0
    async with aclosing(translations):
        async for index, translation in translations:
            row = structs.asdict(_row(translation, asked))
            yield json_event(TranslationEvent(**row, index=index), "translation")
            lines += 1
    yield json_event(EndEvent(model.name, model.source_lang, model.target_lang, lines), "end")


def _row(translation: Translation, asked: TranslateRequest) -> TranslationRow:
    row = TranslationRow(translation.text)
    if translation.error:
        row.error = translation.error
    if translation.warnings:
        row.warnings = list(translation.warnings.values())
    if asked.n_best > 1 or asked.word_scores or asked.alignment:
        row.candidates = [_candidate(candidate, asked) for candidate in translation.candidates[: asked.n_best]]
    return row


def _candidate(candidate: Candidate, asked: TranslateRequest) -> CandidateRow:
    return CandidateRow(
        candidate.text,
        candidate.score,
        candidate.log_prob,
        candidate.word_scores if asked.word_scores else UNSET,
        candidate.weights if asked.alignment else UNSET,
    )
