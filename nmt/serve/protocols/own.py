"""Our own protocol, with everything that a search gives: candidates, scores, alignment, constraints."""

from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from nmt.serve.calls import Call, Fields
from nmt.serve.models import Details
from nmt.serve.problems import ProblemError
from nmt.serve.service import Service
from nmt.text.corpus import clean, is_invisible
from nmt.translate.requests import Request
from nmt.translate.results import Candidate, Translation

MAX_CANDIDATES: Final = 100


class Text(msgspec.Struct, forbid_unknown_fields=True):
    """A line with constraints."""

    text: str
    prefix: str = ""
    phrases: list[str] = []
    avoid: list[str] = []


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """The body of /v1/translate."""

    text: str | Text | list[str | Text]
    model: str | None = None
    source: str | None = None
    target: str | None = None
    n_best: int = 1
    word_scores: bool = False
    alignment: bool = False
    api_key: str | None = None


def error_shape(status: int, message: str) -> dict[str, Any]:
    return {"error": {"status": status, "message": message}}


def routes(service: Service) -> list[Route]:
    """POST /v1/translate, GET /v1/directions, /health and /metrics."""

    async def translate(call: Call, _: Fields) -> dict[str, Any]:
        question: Question = call.json(Question)
        if not 1 <= question.n_best <= MAX_CANDIDATES:
            raise ProblemError(400, f"n_best is {question.n_best}; must be from 1 to {MAX_CANDIDATES}")
        model = service.models.find(question.model, question.source, question.target)
        texts = question.text if isinstance(question.text, list) else [question.text]
        if len(texts) > service.options.max_texts:
            raise ProblemError(413, f"{len(texts):,} texts, at most {service.options.max_texts:,}")
        requests = list(map(_request, texts))
        has_phrases = any(request.phrases for request in requests)
        details = Details(question.n_best > 1 or question.word_scores, question.alignment, has_phrases)
        translations = await service.translate(model, requests, details)
        return {
            "model": model.name,
            "source": model.source_lang,
            "target": model.target_lang,
            "translations": [_as_json(translation, question) for translation in translations],
        }

    async def directions(_: Call, __: Fields) -> dict[str, Any]:
        models = service.models.by_name.values()
        rows = [
            {"model": m.name, "source": m.source_lang, "target": m.target_lang, "loaded": m.is_loaded} for m in models
        ]
        return {"directions": rows}

    async def health(_: Call, __: Fields) -> dict[str, str]:
        return {"status": "ok"}

    async def metrics(_: Call, __: Fields) -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    endpoint = service.answerer.endpoint
    return [
        Route("/v1/translate", endpoint("nmt", translate, error_shape), methods=["POST"]),
        Route("/v1/directions", endpoint("nmt", directions, error_shape), methods=["GET"]),
        Route("/health", endpoint("health", health, error_shape, is_open=True), methods=["GET"]),
        Route("/metrics", endpoint("metrics", metrics, error_shape, is_open=True), methods=["GET"]),
    ]


def _request(text: str | Text) -> Request:
    """A line as the search takes it; line breaks in it are spaces."""
    if isinstance(text, str):
        text = Text(text)
    phrases, avoid = (tuple(filter(None, map(clean, texts))) for texts in (text.phrases, text.avoid))
    return Request("" if is_invisible(text.text) else clean(text.text), clean(text.prefix), phrases, avoid)


def _as_json(translation: Translation, question: Question) -> dict[str, Any]:
    row: dict[str, Any] = {"translation": translation.text}
    if translation.error:
        row["error"] = translation.error
    if translation.warnings:
        row["warnings"] = list(translation.warnings.values())
    if question.n_best > 1 or question.word_scores or question.alignment:
        row["candidates"] = [_candidate(candidate, question) for candidate in translation.candidates[: question.n_best]]
    return row


def _candidate(candidate: Candidate, question: Question) -> dict[str, Any]:
    """Log-probabilities in nats. alignment: for each word of the translation, the weight of each word of the source"""
    row: dict[str, Any] = {"text": candidate.text, "score": candidate.score, "log_prob": candidate.log_prob}
    if question.word_scores:
        row["word_scores"] = candidate.word_scores
    if question.alignment:
        row["alignment"] = candidate.weights
    return row
