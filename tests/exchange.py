"""A request to an ASGI application without sockets, whose answer is read part by part."""

import asyncio
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

NOTHING: Final = MappingProxyType({})


class Exchange:
    """A request that has been sent, and its answer as it comes.

    path: with its query; body: of JSON unless it is bytes
    writable: while it is clear, the client reads nothing and the application waits in `send`
    """

    def __init__(
        self,
        application: Any,
        path: str,
        body: Mapping[str, Any] | bytes,
        headers: Mapping[str, str] = NOTHING,
        method: str = "POST",
    ) -> None:
        self._body, self._is_read = body if isinstance(body, bytes) else json.dumps(body).encode(), False
        self._messages: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self._gone, self.writable = asyncio.Event(), asyncio.Event()
        self.writable.set()
        named = {"content-type": "application/json", **headers}
        scope = {
            "type": "http",
            "method": method,
            "scheme": "http",
            "path": path.partition("?")[0],
            "query_string": path.partition("?")[2].encode(),
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
            "client": ("127.0.0.1", 1),
            "state": {"lost": asyncio.get_running_loop().create_future()},
        }
        self._lost = scope["state"]["lost"]
        self.task = asyncio.ensure_future(application(scope, self._receive, self._send))

    def leave(self) -> None:
        """Close the connection; what is sent from then on is lost, and `send` does not wait."""
        self._gone.set()
        self._lost.set_result(None)
        self.writable.set()

    async def head(self) -> tuple[int, dict[str, str]]:
        """(status, headers)"""
        message = await self._messages.get()
        assert message["type"] == "http.response.start"
        return message["status"], {name.decode(): value.decode() for name, value in message["headers"]}

    async def part(self) -> bytes | None:
        """The next part of the body; None after the last one."""
        message = await self._messages.get()
        assert message["type"] == "http.response.body"
        if not message.get("more_body"):
            self._messages.put_nowait({"type": "http.response.body", "body": b""})  # what follows is the end
            return message["body"] or None
        return message["body"]

    async def body(self) -> bytes:
        """The rest of the body."""
        parts = []
        while (part := await self.part()) is not None:
            parts.append(part)
        return b"".join(parts)

    async def _receive(self) -> Mapping[str, Any]:
        if not self._is_read:
            self._is_read = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Mapping[str, Any]) -> None:
        await self.writable.wait()
        self._messages.put_nowait(message)


def events_of(content: bytes) -> list[tuple[str, Any]]:
    """(name, data) of each server-sent event; the data as JSON if it is."""
    assert content.endswith(b"\n\n")
    found = []
    for event in content.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in event.split("\n"))
        data = fields["data"]
        found.append((fields.get("event", "message"), json.loads(data) if data.startswith("{") else data))
    return found
