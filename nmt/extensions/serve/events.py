"""Server-sent events (HTML standard, section 9.2), which send the parts of a response as soon as they are ready."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import msgspec
from starlette.datastructures import Headers
from starlette.types import Send

EVENTS_TYPE: Final = "text/event-stream"
ERROR_EVENT: Final = "error"  # name of the event that ends a failed stream
EVENTS_HEADERS: Final = {
    "content-type": f"{EVENTS_TYPE}; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # otherwise nginx buffers the events
}


def json_event(content: Any, name: str = "") -> bytes:
    """Encode an event with JSON content, which contains no line breaks.

    name: name of the event; empty for the default, `message`
    """
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + msgspec.json.encode(content) + b"\n\n"


class EventStream:
    """A response that consists of events. A client that reads slowly delays only the iterator of its own events.

    has_started: whether the headers were sent. They are sent with the first event, so that an earlier error can set the status
    """

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        self._events = events
        self.has_started = False

    async def send(self, send: Send, request_id: str) -> None:
        """Send all events, but not the end of the body. Closes their iterator, and propagates its errors."""
        async with aclosing(self._events):
            async for event in self._events:
                if not self.has_started:
                    headers = Headers({**EVENTS_HEADERS, "x-request-id": request_id})
                    await send({"type": "http.response.start", "status": 200, "headers": headers.raw})
                    self.has_started = True
                await send({"type": "http.response.body", "body": event, "more_body": True})

    async def end(self, send: Send, event: bytes) -> None:
        """Send the end of a stream that has started. event: an error event, or empty bytes"""
        await send({"type": "http.response.body", "body": event, "more_body": False})
