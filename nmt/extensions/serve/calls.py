"""Reads HTTP requests for the protocols (body, fields, API key), and sends their responses, including errors."""

import asyncio
import secrets
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nmt.errors import ResourceError, one_line, quoted
from nmt.extensions.serve.access import Gate
from nmt.extensions.serve.events import ERROR_EVENT, EventStream, json_event
from nmt.extensions.serve.metrics import Metrics
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.problems import ProblemError, UnknownKeyError
from nmt.log import log, stamped

MAX_FIELDS: Final = 10_000  # limit per form
CLIENT_GONE: Final = 499  # status that the log shows if the client disconnected
KEY_SCHEMES: Final = ("Bearer ", "DeepL-Auth-Key ")  # what precedes a key in the Authorization header
KEY_FIELDS: Final = ("api_key", "auth_key")
FILE_FIELD: Final = "file"  # the field of a form whose file may be a document of any kind
MAX_FILE_NAME: Final = 100  # characters of the name of a file; the rest, at its start, is dropped
GZIP_BITS: Final = 31  # zlib reads a gzip header and checksum

Fields = dict[str, Any]
Handler = Callable[["Call"], Awaitable[Any]]
Shape = Callable[[int, str], Any]
"""A function (status, message) that makes the body of a protocol's error response."""


class Upload(NamedTuple):
    """A file in a form. name: its file name, in one line and without folders"""

    name: str
    content: bytes


@dataclass
class Call:
    """A request. Handlers get it when its body has been read.

    query: query parameters of the URL
    path: path parameters of the URL, by their names in the route
    client: the client's address
    scheme: http, or https if a trusted proxy says so
    """

    headers: Mapping[str, str]
    query: list[tuple[str, str]]
    body: bytes = b""
    path: Mapping[str, str] = field(default_factory=dict)
    client: str = "-"
    scheme: str = "http"
    _fields: Fields | None = None

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def json(self, kind: Any = Fields) -> Any:
        """The body, decoded from JSON to the given type. Raises ProblemError."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ProblemError(400, f"the body is not valid JSON for this request: {quoted(error)}") from None

    async def fields(self) -> Fields:
        """The parameters in the URL and in the body, which is JSON or a form. Repeated parameters become a list.

        A JSON field that is null counts as missing. The file in the field `file` becomes an Upload; other files are texts.
        Raises ProblemError.
        """
        if self._fields is None:
            self._fields = await self._read_fields()
        return self._fields

    async def _read_fields(self) -> Fields:
        pairs: list[tuple[str, Any]]
        if not self.body:
            return _joined(self.query)
        if self.content_type == "multipart/form-data":
            pairs = await self._multipart()
        elif self.content_type == "application/json" or self.body[:1] == b"{":
            given: Fields = self.json()
            return _joined(self.query) | {name: value for name, value in given.items() if value is not None}
        else:
            try:
                pairs = parse_qsl(
                    self.body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
                )
            except ValueError as error:
                raise ProblemError(400, f"the body is not a valid form: {quoted(error)}") from None
        return _joined([*self.query, *pairs])

    async def _multipart(self) -> list[tuple[str, Any]]:
        async def stream() -> Any:
            yield self.body

        try:
            parser = MultiPartParser(
                Headers(self.headers), stream(), max_fields=MAX_FIELDS, max_part_size=len(self.body)
            )
            parser.spool_max_size = len(self.body)  # no file needs the disk, which may be full
            parsed = await parser.parse()
            try:
                return [await _field_of_form(name, value) for name, value in parsed.multi_items()]
            finally:
                await parsed.close()  # deletes its temporary files
        except (MultiPartException, ValueError, KeyError) as error:
            raise ProblemError(400, f"the body is not a valid multipart form: {quoted(error)}") from None

    def key(self, fields: Mapping[str, Any]) -> str:
        """The API key that the client sent, or an empty string."""
        given = _as_utf8(self.headers.get("authorization", ""))
        for scheme in KEY_SCHEMES:
            if given.lower().startswith(scheme.lower()):
                return given[len(scheme) :].strip()
        found = (fields.get(name) for name in KEY_FIELDS)
        return _as_utf8(self.headers.get("x-api-key", "")) or next((key for key in found if isinstance(key, str)), "")


async def _field_of_form(name: str, value: UploadFile | str) -> tuple[str, Any]:
    """The name and value of a field of a multipart form. Raises ValueError for invalid text."""
    if isinstance(value, UploadFile):
        content = await value.read()
        if name == FILE_FIELD:
            return name, Upload(file_name(value.filename or ""), content)
        value = content.decode()
    (name + value).encode()  # raises ValueError for surrogates, which some charsets produce
    return name, value


def file_name(given: str) -> str:
    """A file name from a client, in one line, without folders, and short enough for an address."""
    name = quoted(PurePath(given).name[-MAX_FILE_NAME:])
    return FILE_FIELD if name in ("", "..") else name


def _as_utf8(header: str) -> str:
    """Decode a header as UTF-8, because Starlette decodes it as Latin-1."""
    return header.encode("latin-1").decode(errors="replace")


def _joined(pairs: Sequence[tuple[str, Any]]) -> Fields:
    values: dict[str, list[Any]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: given[0] if len(given) == 1 else given for name, given in values.items()}


@dataclass(frozen=True)
class Endpoint:
    """The ASGI application around a handler. It checks limits and keys, responds to errors, and writes the log and the metrics.

    protocol: name of the protocol in the metrics
    shape: makes the body of an error
    key_status: HTTP status for an unknown key
    is_open: whether requests without a key are accepted
    """

    options: ServeOptions
    metrics: Metrics
    gate: Gate
    protocol: str
    handler: Handler
    shape: Shape
    key_status: int
    is_open: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, began = headers_of(scope), time.monotonic()
        number = request_id(headers)
        answered, last_event = None, b""
        try:
            async with asyncio.timeout(self.options.timeout):
                with _while_connected(scope), self.metrics.running.track_inprogress():
                    answered = await self._handle(scope, headers, receive)
                    if isinstance(answered, EventStream):
                        await answered.send(send, number)
            if isinstance(answered, EventStream):
                response = Response()  # provides the status of the stream for the log
            else:
                response = answered if isinstance(answered, Response) else json_response(answered)
        except (Exception, asyncio.CancelledError) as error:  # a server that is stopping cancels slow requests
            problem = problem_of(error, f"request {number}", self.options.timeout)
            if isinstance(problem, UnknownKeyError):
                problem = UnknownKeyError(self.key_status)
            content = self.shape(problem.status, str(problem))
            response = json_response(content, problem.status, problem.headers)
            last_event = json_event(content, ERROR_EVENT)
        record(scope, number, response.status_code, began, self.protocol, self.metrics, self.options)
        if isinstance(answered, EventStream) and answered.has_started:
            await answered.end(send, last_event)
            return
        response.headers["x-request-id"] = number
        await response(scope, receive, send)

    async def _handle(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> Any:
        """Check the request, and return the handler's answer. The body is read last, unless it may contain the key."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        client = client_address(scope)
        call = Call(headers, query, b"", scope.get("path_params", {}), client, scope["scheme"])
        key = call.key(dict(query))
        is_key_in_body = not key and self.options.keys is not None  # or missing
        if not self.is_open and not is_key_in_body:
            self.gate.check(key, client)
        call.body = await read_body(receive, headers, self.options.max_body_bytes)
        if not self.is_open and is_key_in_body:
            self.gate.check(call.key(await call.fields()), client)
        return await self.handler(call)


async def read_body(receive: Receive, headers: Mapping[str, str], limit: int) -> bytes:
    """Read the body of a request, keeping at most `limit` bytes in memory. Raises ProblemError for a larger body."""
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "gzip", "x-gzip"):
        raise ProblemError(415, f"the body has the coding '{one_line(coding)}' (use gzip)", {"Accept-Encoding": "gzip"})
    too_large = ProblemError(413, f"the body is larger than {limit:,} bytes", {"Connection": "close"})
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise too_large
    parts, size, more = list[bytes](), 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
        if size > limit:
            raise too_large
    body = b"".join(parts)
    if coding == "identity" or not body:
        return body
    unpacker = zlib.decompressobj(GZIP_BITS)
    try:
        body = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise ProblemError(400, f"the body is not in gzip's format: {error}") from None
    if len(body) > limit:
        raise too_large
    if not unpacker.eof or unpacker.unused_data:
        raise ProblemError(400, "the body is not in gzip's format: it is truncated, or something follows it")
    return body


def problem_of(error: BaseException, name: str, timeout: float) -> ProblemError:
    """Convert any error to the error that the client gets.

    name: name of the call, for the log
    timeout: time limit of the call, in seconds
    """
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, ClientDisconnect):
        return ProblemError(CLIENT_GONE, "the client disconnected")
    if isinstance(error, asyncio.CancelledError):
        return ProblemError(503, "the server is shutting down")
    if isinstance(error, TimeoutError):
        return ProblemError(504, f"the request took longer than {timeout:g} seconds")
    log.error(f"{name}: {type(error).__name__}: {one_line(str(error))}")
    if isinstance(error, OSError | MemoryError | ResourceError):
        return ProblemError(503, "the server lacks disk space, memory or another resource (see the server's log)")
    return ProblemError(500, "internal server error (see the server's log)")


def record(
    scope: Scope, number: str, status: int, began: float, protocol: str, metrics: Metrics, options: ServeOptions
) -> None:
    """Count a request in the metrics and write it to the log.

    number: id of the request
    began: start time, from time.monotonic
    protocol: name of the protocol in the metrics
    """
    seconds = time.monotonic() - began
    metrics.count(protocol, status, seconds)
    if options.access_log:
        asked = f"{scope['method']} {quoted(scope['path'])}"
        log.info(stamped(f"{client_address(scope)} {number} {asked} {status} {1000 * seconds:.0f} ms"))


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response. content: anything that msgspec can encode"""
    return Response(msgspec.json.encode(content), status, headers, "application/json")


def headers_of(scope: Scope) -> dict[str, str]:
    """A request's headers by their names in lower case. Of a repeated header, the first counts."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}


def client_address(scope: Scope) -> str:
    """The client's address, or `-` if it is unknown. Requests without a key are counted per address."""
    return scope["client"][0] if scope["client"] else "-"


def request_id(headers: Mapping[str, str]) -> str:
    """The client's request id if that is a short word, otherwise a new one."""
    given = headers.get("x-request-id", "")
    is_word = given.isascii() and given.isprintable() and " " not in given
    return given if is_word and 0 < len(given) <= 64 else secrets.token_hex(16)


@contextmanager
def _while_connected(scope: Scope) -> Iterator[None]:
    """Cancel the work inside, and raise ClientDisconnect, if the client disconnects."""
    lost: asyncio.Future[None] = scope["state"]["lost"]  # set by the connection
    task = asyncio.current_task()
    assert task is not None

    def cancel(_: object) -> None:
        task.cancel()

    lost.add_done_callback(cancel)
    try:
        yield
    except asyncio.CancelledError:
        if lost.done() and not task.uncancel():
            raise ClientDisconnect from None
        raise
    finally:
        lost.remove_done_callback(cancel)


async def unless(event: Awaitable[Any], work: Awaitable[Any], error: Exception) -> Any:
    """Await some work. If the event occurs first, cancel the work and raise the error."""
    tasks = asyncio.ensure_future(work), asyncio.ensure_future(event)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return tasks[0].result()
        raise error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
