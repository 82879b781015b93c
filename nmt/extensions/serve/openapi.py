"""The description of our own protocol for programs (OpenAPI 3.1, https://spec.openapis.org/oas/v3.1.1.html)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from nmt.extensions.serve.calls import Handler
from nmt.extensions.serve.events import EVENTS_TYPE
from nmt.extensions.serve.options import ServeOptions
from nmt.version import __version__

JSON_TYPE: Final = "application/json"
RETRIED_STATUSES: Final = (429, 503)  # whose answers say in Retry-After when to ask again
KEY_SCHEMES_OF_OPENAPI: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "api_key"},
}
HEADERS: Final = {
    "X-Request-Id": {
        "description": "Number of the request: the client's, if it sent a word of at most 64 characters, else a new one.",
        "schema": {"type": "string"},
    },
    "Retry-After": {"description": "Seconds after which to ask again.", "schema": {"type": "integer", "minimum": 1}},
}


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A method of a path.

    protocol: name in the metrics
    handler: of the requests; its name is the operation's
    request: type of the body; None without one
    answer: type of the answer
    media_type: of the answer
    events: types of the events of a stream by name; empty without one
    problems: statuses of errors, besides those of every operation
    is_open: whether it needs no key
    """

    method: str = "GET"
    path: str
    protocol: str
    summary: str
    handler: Handler
    request: Any = None
    answer: Any
    media_type: str = JSON_TYPE
    events: Mapping[str, type] = field(default_factory=dict)
    problems: tuple[int, ...] = ()
    is_open: bool = False

    @property
    def types(self) -> list[Any]:
        """The types of its messages."""
        return [*([] if self.request is None else [self.request]), self.answer, *self.events.values()]

    @property
    def statuses(self) -> list[int]:
        """The statuses of its errors."""
        return sorted({400, 413, 500, 504, *self.problems, *(() if self.is_open else (403, 429))})


def describe(operations: Sequence[Operation], error: type, options: ServeOptions) -> dict[str, Any]:
    """The description of operations as JSON. error: type of the body of an error"""
    types = list(dict.fromkeys([error, *(kind for operation in operations for kind in operation.types)]))
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schema_of, options)
    problems = {str(status): _problem(status, text, schema_of[error]) for status, text in _reasons(options).items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "nmt serve", "version": __version__, "description": _introduction(options)},
        "servers": [{"url": "."}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": problems,
            "headers": HEADERS,
            "securitySchemes": KEY_SCHEMES_OF_OPENAPI,
        },
    }


def _introduction(options: ServeOptions) -> str:
    keys = "Each request needs a key" if options.keys is not None else "This server asks for no key"
    return (
        f"Translations by our own protocol. {keys}. A request may have {options.max_body:g} MiB, "
        f"{options.max_texts:,} texts and {options.max_characters:,} characters, and take {options.timeout:g} seconds. "
        "A path that is not known is answered by 404, another method by 405, both with the body of the other errors."
    )


def _reasons(options: ServeOptions) -> dict[int, str]:
    """The meaning of each status of an error, with the limits of this server."""
    rate = f"at most {options.requests_per_minute:,} a minute" if options.requests_per_minute else "no limit here"
    return {
        400: "The request is not what is expected; the message names the field.",
        403: "The key is missing or not known.",
        413: (
            f"The body has more than {options.max_body:g} MiB, or the request more than {options.max_texts:,} texts, "
            f"{options.max_characters:,} characters or {options.max_waiting:,} sentences."
        ),
        429: f"Too many requests of this key, or of this address where there are no keys ({rate}).",
        500: "The server failed; its log says how.",
        503: (
            f"More than {options.max_waiting:,} lines wait, the model cannot be loaded, or there are more than "
            f"{options.max_connections:,} connections (as plain text)."
        ),
        504: f"The request took longer than {options.timeout:g} seconds.",
    }


def _problem(status: int, reason: str, schema: Any) -> dict[str, Any]:
    content = {JSON_TYPE: {"schema": schema}}
    if status == 503:
        content["text/plain"] = {"schema": {"type": "string"}}
    return {"description": reason, "headers": _headers(status), "content": content}


def _operation(operation: Operation, schema_of: dict[Any, Any], options: ServeOptions) -> dict[str, Any]:
    described: dict[str, Any] = {"operationId": operation.handler.__name__, "summary": operation.summary}
    if operation.request is not None:
        schema = schema_of[operation.request]
        described["requestBody"] = {"required": True, "content": {JSON_TYPE: {"schema": schema}}}
    answers = {operation.media_type: {"schema": schema_of[operation.answer]}}
    meaning = "The answer."
    if operation.events:
        answers[EVENTS_TYPE] = {"schema": {"anyOf": [schema_of[kind] for kind in operation.events.values()]}}
        names = ", ".join(f"`{name}`: {kind.__name__}" for name, kind in operation.events.items())
        meaning = f"The answer; a stream has events, whose data is JSON and whose name says of which schema ({names})."
    described["responses"] = {
        "200": {"description": meaning, "headers": _headers(200), "content": answers},
        **{str(status): {"$ref": f"#/components/responses/{status}"} for status in operation.statuses},
    }
    if not operation.is_open:
        without: list[dict[str, list[str]]] = [] if options.keys is not None else [{}]
        described["security"] = [*without, *({name: []} for name in KEY_SCHEMES_OF_OPENAPI)]
    return described


def _headers(status: int) -> dict[str, Any]:
    names = ["X-Request-Id", "Retry-After"] if status in RETRIED_STATUSES else ["X-Request-Id"]
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
