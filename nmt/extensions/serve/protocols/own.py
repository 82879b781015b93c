"""nmt's own protocol, which offers everything that the search supports: candidates, scores, alignment, constraints."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET, structs
from starlette.responses import Response
from starlette.routing import BaseRoute

from nmt import register
from nmt.extensions.serve.calls import Call
from nmt.extensions.serve.events import EventStream, json_event
from nmt.extensions.serve.messages import (
    CandidateRow,
    Direction,
    DirectionsAnswer,
    EndEvent,
    HealthAnswer,
    ReadyAnswer,
    Text,
    TranslateAnswer,
    TranslateRequest,
    TranslationEvent,
    TranslationRow,
)
from nmt.extensions.serve.models import Details, ServedModel, in_thread
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.protocol import ClientProtocol
from nmt.extensions.serve.scheduler import NumberedTranslation
from nmt.extensions.serve.service import Service
from nmt.extensions.texts.glossary import Glossary
from nmt.extensions.texts.placeholders import has_placeholders
from nmt.extensions.texts.text_steps import TextSettings
from nmt.options import NoOptions
from nmt.text.corpus import visible_line
from nmt.translate.requests import Request, cleaned_request
from nmt.translate.results import Candidate, Translation
from nmt.version import __version__

METRICS_TYPE: Final = "text/plain; version=0.0.4"  # Prometheus' text format
OPENAPI_FILE: Final = Path(__file__).parents[1] / "openapi.json"  # written by docs/openapi.py


@register("protocol", "nmt", NoOptions)
class NmtProtocol(ClientProtocol):
    """nmt's own protocol: candidates, scores, alignment, constraints, and an OpenAPI description."""

    def __init__(self, options: ServeOptions, service: Service) -> None:
        super().__init__(options, service)
        self._description = description(options)

    def routes(self) -> list[BaseRoute]:
        """POST /v1/translate, GET /v1/directions, /health, /ready, /metrics, and /openapi.json, which describes them."""
        return [
            self.route("/v1/translate", self.translate, "POST"),
            self.route("/v1/directions", self.directions, "GET"),
            self.route("/health", self.health, "GET", is_open=True, name="health"),
            self.route("/ready", self.ready, "GET", is_open=True, name="ready"),
            self.route("/metrics", self.metrics, "GET", is_open=True, name="metrics"),
            self.route("/openapi.json", self.description, "GET", is_open=True, name="openapi"),
        ]

    async def translate(self, call: Call) -> TranslateAnswer | EventStream:
        asked: TranslateRequest = call.json(TranslateRequest)
        model = self.service.models.find(asked.model, asked.source, asked.target)
        texts = asked.text if isinstance(asked.text, list) else [asked.text]
        self.service.check_count(texts)
        keeps_lines = asked.split or asked.markup != "none"
        requests = [_request(text, keeps_lines) for text in texts]
        self.service.check_size(requests)  # before the search for placeholders, which nothing can interrupt
        glossary = await in_thread(partial(Glossary, asked.glossary)) if asked.glossary else None
        settings = _settings(asked, requests, glossary)
        has_phrases = any(request.phrases for request in requests)
        if asked.alternatives and (has_phrases or asked.glossary or asked.repair):
            raise ProblemError(400, "alternatives cannot be combined with phrases, a glossary or repair")
        has_scores = asked.n_best > 1 or asked.word_scores
        details = Details(has_scores, asked.alignment, has_phrases, alternatives=asked.alternatives)
        if asked.stream:
            return EventStream(_events(model, asked, self.service.stream_texts(model, requests, settings, details)))
        translations = await self.service.translate_texts(model, requests, settings, details)
        rows = [_row(translation, asked) for translation in translations]
        return TranslateAnswer(model.name, model.source_lang, model.target_lang, rows)

    async def directions(self, _: Call) -> DirectionsAnswer:
        models = self.service.models.by_name.values()
        return DirectionsAnswer([Direction(m.name, m.source_lang, m.target_lang, m.is_loaded) for m in models])

    async def health(self, _: Call) -> HealthAnswer:
        return HealthAnswer()

    async def ready(self, _: Call) -> ReadyAnswer:
        if self.service.not_ready:
            raise ProblemError(503, self.service.not_ready, {"Retry-After": "1"})
        return ReadyAnswer()

    async def metrics(self, _: Call) -> Response:
        return Response(self.service.metrics.text(), media_type=METRICS_TYPE)

    async def description(self, _: Call) -> dict[str, Any]:
        return self._description


def description(options: ServeOptions) -> dict[str, Any]:
    """The OpenAPI 3.1 description of the protocol, with the limits of this server."""
    rate = f"at most {options.requests_per_minute:,} per minute" if options.requests_per_minute else "no limit here"
    facts = {
        "version": __version__,
        "keys": "Each request needs a key" if options.keys is not None else "This server needs no key",
        "rate": rate,
        "max_body": f"{options.max_body:g}",
        "timeout": f"{options.timeout:g}",
        **{
            name: f"{getattr(options, name):,}"
            for name in ("max_texts", "max_characters", "max_waiting", "max_connections")
        },
    }
    text = OPENAPI_FILE.read_text(encoding="utf-8")
    for name, fact in facts.items():
        text = text.replace(f"{{{name}}}", fact)
    document: dict[str, Any] = json.loads(text)
    for operation in (one for methods in document["paths"].values() for one in methods.values()):
        if options.keys is not None and "security" in operation:
            operation["security"].remove({})  # this entry makes the key optional
    return document


def _settings(asked: TranslateRequest, requests: Sequence[Request], glossary: Glossary | None) -> TextSettings:
    """How to translate a request's texts. Raises ProblemError if alignment or word scores are requested for several sentences."""
    shows_search = asked.alignment or asked.word_scores
    check = asked.check
    if check is None:
        check = not shows_search and any(has_placeholders(request.text) for request in requests)
    settings = TextSettings(asked.split, asked.markup, glossary, asked.repair, check)
    if shows_search and replace(settings, glossary=None) != TextSettings():
        raise ProblemError(400, "alignment and word_scores cannot be combined with split, markup, repair or check")
    return settings


def _request(text: str | Text, keeps_lines: bool) -> Request:
    """Convert a text to a request for the search. keeps_lines: keep line breaks instead of replacing them with spaces"""
    if isinstance(text, str):
        text = Text(text)
    line = text.text if keeps_lines else visible_line(text.text)
    return cleaned_request(line, text.prefix, text.phrases, {"avoid": text.avoid}, text.context)


async def _events(
    model: ServedModel, asked: TranslateRequest, translations: AsyncGenerator[NumberedTranslation, None]
) -> AsyncGenerator[bytes, None]:
    """Yield one event per line, and one for the end."""
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
