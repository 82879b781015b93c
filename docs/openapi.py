"""Writes nmt/extensions/serve/openapi.json, the description of nmt's own protocol (OpenAPI 3.1,
https://spec.openapis.org/oas/v3.1.1.html).

`nmt serve` replaces placeholders such as `{max_texts}` with the limits of the server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from nmt.extensions.serve.events import ERROR_EVENT, EVENTS_TYPE
from nmt.extensions.serve.messages import (
    DirectionsAnswer,
    EndEvent,
    ErrorAnswer,
    HealthAnswer,
    ReadyAnswer,
    TranslateAnswer,
    TranslateRequest,
    TranslationEvent,
)
from nmt.extensions.serve.protocols.own import METRICS_TYPE

JSON_TYPE: Final = "application/json"
RETRIED_STATUSES: Final = (429, 503)  # responses with these statuses have Retry-After
KEY_SCHEMES_OF_OPENAPI: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "api_key"},
}
HEADERS: Final = {
    "X-Request-Id": {
        "description": "Request id: the client's own if it sent a word of up to 64 characters, otherwise a new one.",
        "schema": {"type": "string"},
    },
    "Retry-After": {
        "description": "Number of seconds to wait before trying again.",
        "schema": {"type": "integer", "minimum": 1},
    },
}


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method of a path.

    name: id of the operation
    request: type of the request body, or None
    answer: type of the response
    media_type: media type of the response
    events: types of a stream's events by name; empty if the operation has no stream
    problems: HTTP statuses of errors, besides those of all operations
    is_open: whether requests need no key
    """

    method: str = "GET"
    path: str
    name: str
    summary: str
    request: Any = None
    answer: Any
    media_type: str = JSON_TYPE
    events: Mapping[str, type] = field(default_factory=dict)
    problems: tuple[int, ...] = ()
    is_open: bool = False

    @property
    def types(self) -> list[Any]:
        """The types of the operation's messages."""
        return [*([] if self.request is None else [self.request]), self.answer, *self.events.values()]

    @property
    def statuses(self) -> list[int]:
        """The HTTP statuses of the operation's errors."""
        return sorted({400, 403, 413, 415, 421, 500, 504, *self.problems, *(() if self.is_open else (429,))})


OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/translate",
        name="translate",
        summary="Translate lines.",
        request=TranslateRequest,
        answer=TranslateAnswer,
        events={"translation": TranslationEvent, "end": EndEvent, ERROR_EVENT: ErrorAnswer},
        problems=(503,),
    ),
    Operation(path="/v1/directions", name="directions", summary="List the models.", answer=DirectionsAnswer),
    Operation(
        path="/health", name="health", summary="Check that the server is running.", answer=HealthAnswer, is_open=True
    ),
    Operation(
        path="/ready",
        name="ready",
        summary="Check that the server can translate: the models of --preload are loaded, and it is not shutting down.",
        answer=ReadyAnswer,
        problems=(503,),
        is_open=True,
    ),
    Operation(
        path="/metrics",
        name="metrics",
        summary="Return metrics for Prometheus.",
        answer=str,
        media_type=METRICS_TYPE,
        is_open=True,
    ),
    Operation(
        path="/openapi.json",
        name="description",
        summary="Describe this protocol.",
        answer=dict[str, Any],
        is_open=True,
    ),
)
INTRODUCTION: Final = (
    "Translations over nmt's own protocol. {keys}. A request may have up to {max_body} MiB, {max_texts} texts and "
    "{max_characters} characters, and may take {timeout} seconds. Unknown paths get status 404 and other methods 405, with the "
    "same body as other errors."
)
PROBLEMS: Final = {  # the meaning of each status of an error
    400: "The request is invalid. The message names the field.",
    403: "The API key is missing or unknown, or a web page of another origin sent the request.",
    413: (
        "The body is larger than {max_body} MiB, or the request has more than {max_texts} texts, {max_characters} characters "
        "or {max_waiting} sentences."
    ),
    415: "The body has a coding other than gzip.",
    421: "The Host header names another server.",
    429: "Too many requests with this key or, on a server without keys, from this address ({rate}).",
    500: "Internal server error. See the server's log.",
    503: (
        "More than {max_waiting} lines are waiting, the model cannot be loaded, or there are more than {max_connections} "
        "connections (as plain text)."
    ),
    504: "The request took longer than {timeout} seconds.",
}


def describe() -> dict[str, Any]:
    """Build the OpenAPI description of the protocol."""
    types = list(dict.fromkeys([ErrorAnswer, *(kind for operation in OPERATIONS for kind in operation.types)]))
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schema_of)
    problems = {str(status): _problem(status, text, schema_of[ErrorAnswer]) for status, text in PROBLEMS.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "nmt serve", "version": "{version}", "description": INTRODUCTION},
        "servers": [{"url": "."}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": problems,
            "headers": HEADERS,
            "securitySchemes": KEY_SCHEMES_OF_OPENAPI,
        },
    }


def _problem(status: int, reason: str, schema: Any) -> dict[str, Any]:
    content = {JSON_TYPE: {"schema": schema}}
    if status == 503:
        content["text/plain"] = {"schema": {"type": "string"}}
    return {"description": reason, "headers": _headers(status), "content": content}


def _operation(operation: Operation, schema_of: dict[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"operationId": operation.name, "summary": operation.summary}
    if operation.request is not None:
        schema = schema_of[operation.request]
        described["requestBody"] = {"required": True, "content": {JSON_TYPE: {"schema": schema}}}
    answers = {operation.media_type: {"schema": schema_of[operation.answer]}}
    meaning = "The response."
    if operation.events:
        answers[EVENTS_TYPE] = {"schema": {"anyOf": [schema_of[kind] for kind in operation.events.values()]}}
        names = ", ".join(f"`{name}`: {kind.__name__}" for name, kind in operation.events.items())
        meaning = f"The response. A stream consists of events with JSON data. Each event's name determines its schema ({names})."
    described["responses"] = {
        "200": {"description": meaning, "headers": _headers(200), "content": answers},
        **{str(status): {"$ref": f"#/components/responses/{status}"} for status in operation.statuses},
    }
    if not operation.is_open:
        # The first entry makes the key optional; `nmt serve --keys` removes it.
        described["security"] = [{}, *({name: []} for name in KEY_SCHEMES_OF_OPENAPI)]
    return described


def _headers(status: int) -> dict[str, Any]:
    names = ["X-Request-Id", "Retry-After"] if status in RETRIED_STATUSES else ["X-Request-Id"]
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
