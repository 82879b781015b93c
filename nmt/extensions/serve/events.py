"""Server-sent events (HTML standard, section 9.2): an answer whose parts are sent as soon as they are there."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import msgspec
from starlette.datastructures import Headers
from starlette.types import Send

EVENTS_TYPE: Final = "text/event-stream"
ERROR_EVENT: Final = "error"  # name of the event that ends a stream which fails
EVENTS_HEADERS: Final = {
    "content-type": f"{EVENTS_TYPE}; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # nginx would collect the events
}


def json_event(content: Any, name: str = "") -> bytes:
    """An event with content as JSON, which has no line breaks. name: of the event; empty for `message`, the default"""
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + msgspec.json.encode(content) + b"\n\n"


class EventStream:
    """An answer of events. A client that reads slowly holds up nothing but the iterator of its events.

    has_begun: whether the head is sent. It is sent with the first event, so that an error before has its own status
    """

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        self._events = events
        self.has_begun = False

    async def send(self, send: Send, request_id: str) -> None:
        """Send all events, without the end. Raises what their iterator raises, which is closed in any case."""
        async with aclosing(self._events):
            async for event in self._events:
                if not self.has_begun:
                    headers = Headers({**EVENTS_HEADERS, "x-request-id": request_id})
                    await send({"type": "http.response.start", "status": 200, "headers": headers.raw})
                    self.has_begun = True
                await send({"type": "http.response.body", "body": event, "more_body": True})

    async def end(self, send: Send, event: bytes) -> None:
        """Send the end of a stream that has begun. event: the event of an error, or b"" """
        await send({"type": "http.response.body", "body": event, "more_body": False})
