"""The connections of the server: their number, their time limits, and what is refused before a request exists."""

import asyncio
import resource
from collections import OrderedDict
from typing import Any, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from nmt.log import log

BACKLOG: Final = 128  # connections that the kernel holds, and that the loop accepts before it counts the first of them
SPARE_FILES: Final = 128  # for models, libraries and the log
IDLE_SECONDS = 15.0  # an idle connection is closed after this time
STEP_BYTES: Final = 1 << 15  # per step of the event loop; one-byte chunks of this size take about 3 ms
MAX_OVERHEAD_BYTES: Final = 1 << 16  # headers, trailers and marks of chunks; these may also be as large as the body
MAX_PIPELINED: Final = 16  # requests of a connection that wait for the one before
SERVICE_RESTART: Final = 1012  # WebSocket close code from the registry of RFC 6455
FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\nretry-after: 1\r\n"
    b"content-length: 20\r\nconnection: close\r\n\r\ntoo many connections"
)


class Door:
    """Counts the open connections. If there are too many, it closes one whose client is idle, or refuses the new one.

    The closed connection belongs to the address that has the most, so that one client cannot shut out the others.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.count = limit, 0
        self._by_address: dict[str, OrderedDict[Connection | SocketConnection, None]] = {}  # least recently used first

    def enter(self, connection: "Connection | SocketConnection") -> bool:
        """Count a new connection. Returns False if it must be refused."""
        self.count += 1
        self._by_address.setdefault(connection.address, OrderedDict())[connection] = None
        if self.count <= self.limit:
            return True
        for own in sorted(self._by_address.values(), key=len, reverse=True):
            idle = [one for one in own if one.is_idle and one is not connection]
            if idle:
                oldest = next((one for one in idle if one.is_unused), idle[0])
                self.leave(oldest)
                oldest.transport.abort()
                return True
        return False

    def touch(self, connection: "Connection | SocketConnection") -> None:
        """Note that a connection is being used."""
        own = self._by_address.get(connection.address)
        if own is not None and connection in own:
            own.move_to_end(connection)

    def leave(self, connection: "Connection | SocketConnection") -> None:
        """Forget a connection. It may have been forgotten already."""
        own = self._by_address.get(connection.address)
        if own is not None and connection in own:
            del own[connection]
            self.count -= 1
            if not own:
                del self._by_address[connection.address]


def open_door(max_connections: int) -> Door:
    """A door for as many connections as --max-connections and the limit on open files allow. Raises that limit if possible."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    allowed = max(1, hard - BACKLOG - SPARE_FILES)
    if hard != resource.RLIM_INFINITY and allowed < max_connections:
        log.warn(f"the limit of {hard:,} open files allows only {allowed:,} connections (see `ulimit -Hn`)")
        return Door(allowed)
    return Door(max_connections)


class Connection(HttpToolsProtocol):
    """A connection that is closed if its client sends nothing, or reads nothing, for some time.

    This includes clients that stop in the middle of a header. Requests find the future `lost` in their state.
    """

    def __init__(self, door: Door, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.door = door

    @property
    def address(self) -> str:
        return self.client[0] if self.client else "-"

    @property
    def is_idle(self) -> bool:
        """Whether the server waits for the client: for a request, for the rest of one, or until the client reads."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body or self.flow.write_paused

    @property
    def is_unused(self) -> bool:
        """Whether the client has sent no request yet."""
        return self.cycle is None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.max_size = STEP_BYTES  # type: ignore[attr-defined]
        self._lost = self.loop.create_future()
        self.app_state = {**self.app_state, "lost": self._lost}
        self._last: object = None
        self._unread_bytes = 0  # size of the write buffer at the last check, if writing was paused
        self._overhead_bytes = 0  # received for the current request, minus twice its body
        self._timer = self.loop.call_later(IDLE_SECONDS, self._look)
        if not self.door.enter(self):
            transport.write(FULL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.leave(self)
        super().connection_lost(exc)
        self._timer.cancel()  # it would keep the headers of a flood of closed connections in memory
        self._lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._overhead_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except HttpParserError:
            self._refuse("Invalid HTTP request received.")
        if self._overhead_bytes > MAX_OVERHEAD_BYTES:
            self._refuse("The headers are too large, or the chunks too small.")

    def _upgrade(self, rest: bytes) -> None:
        """Become a web socket, or continue in HTTP/1.1 with a client that offers HTTP/2, as Java's does.

        rest: what follows the headers
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self._refuse("Invalid HTTP request received.")
            return
        if self._should_upgrade():
            self.door.leave(self)
            self._timer.cancel()
            self.handle_websocket_upgrade()
            return
        method, headers = self.parser.get_method(), self.headers
        if method == b"CONNECT":
            self._refuse("This server is not a proxy.")
            return
        self.parser = HttpRequestParser(self)
        kept = [(name, value) for name, value in headers if name not in (b"upgrade", b"connection")]
        head = b"".join(b"%s: %s\r\n" % header for header in kept)
        self.data_received(b"%s %s HTTP/1.1\r\n%s\r\n" % (method, self.url, head) + rest)

    def _refuse(self, message: str) -> None:
        """Answer with status 400, unless another answer has started, and close the connection."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.send_400_response(message)
        else:
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._overhead_bytes = 0

    def on_headers_complete(self) -> None:
        """Start the request, unless `_upgrade` decides about it."""
        self.door.touch(self)
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many requests at once")
        if not self.parser.should_upgrade():
            super().on_headers_complete()
        else:
            self.scope["method"] = self.parser.get_method().decode("ascii")

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._overhead_bytes -= 2 * len(body)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread_bytes = 0

    def _look(self) -> None:
        """Close the connection if nothing has happened since the last check. WebSockets use pings instead."""
        unread_bytes = self.transport.get_write_buffer_size() if self.flow.write_paused else 0
        if unread_bytes and unread_bytes == self._unread_bytes:
            self.transport.abort()  # `close` would wait until the client has read everything
            return
        if self.transport.is_closing() and not unread_bytes:
            return
        is_answered = self.cycle is None or self.cycle.response_complete
        if is_answered and self.cycle is self._last and not unread_bytes:
            self.transport.close()
            return
        self._last, self._unread_bytes = self.cycle, unread_bytes
        self._timer = self.loop.call_later(IDLE_SECONDS, self._look)


class SocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket that, when the server stops, answers the messages already received before it closes.

    is_idle: whether the server waits for a message
    """

    is_unused = False

    def __init__(self, door: Door, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.door, self.is_idle = door, False

    @property
    def address(self) -> str:
        return self.client[0] if self.client else "-"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.door.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.leave(self)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self.close_sent:
            super().shutdown()
        else:  # queued behind the messages already received
            self.queue.put_nowait({"type": "websocket.disconnect", "code": SERVICE_RESTART})

    async def receive(self) -> Any:
        self.is_idle = True
        message = await super().receive()
        self.is_idle = False
        self.door.touch(self)
        if message.get("code") == SERVICE_RESTART and not self.transport.is_closing():
            super().shutdown()
        return message
