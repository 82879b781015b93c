"""Runs the server until a signal stops it; handles sockets, signals and the last responses."""

import asyncio
import signal
import socket
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from nmt.errors import ResourceError
from nmt.extensions.serve.app import application
from nmt.extensions.serve.calls import unless
from nmt.extensions.serve.models import Models
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.scheduler import ClosedError
from nmt.extensions.serve.service import PLAIN, Service
from nmt.log import log
from nmt.options import Part

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
LAST_SECONDS = 10  # time for current requests to finish after a signal
BACKLOG = 2048
MAX_OVERHEAD_BYTES = 1 << 16  # headers, trailers and marks between chunks, which may also be as large as the body
IDLE_SECONDS = 15.0  # an idle connection is closed after this time
SERVICE_RESTART = 1012  # WebSocket close code from the registry of RFC 6455


class Connection(HttpToolsProtocol):
    """A connection that is closed if its client sends nothing, or reads nothing, for some time.

    This includes clients that stop in the middle of a header. Requests find the future `lost` in their state.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._lost = self.loop.create_future()
        self.app_state = {**self.app_state, "lost": self._lost}
        self._last: object = None
        self._unread_bytes = 0  # size of the write buffer at the last check, if writing was paused
        self._overhead_bytes = 0  # received for the current request, minus twice its body
        self.loop.call_later(IDLE_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._overhead_bytes += len(data)
        super().data_received(data)
        if self._overhead_bytes > MAX_OVERHEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The headers are too large, or the chunks too small.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._overhead_bytes = 0

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._overhead_bytes -= 2 * len(body)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread_bytes = 0

    def _look(self) -> None:
        """Close the connection if nothing has happened since the last check. WebSockets use pings instead."""
        if self.transport.get_protocol() is not self:
            return
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
        self.loop.call_later(IDLE_SECONDS, self._look)


class SocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket that, when the server stops, answers the messages already received before it closes."""

    def shutdown(self) -> None:
        if self.close_sent:
            super().shutdown()
        else:  # queued behind the messages already received
            self.queue.put_nowait({"type": "websocket.disconnect", "code": SERVICE_RESTART})

    async def receive(self) -> Any:
        message = await super().receive()
        if message.get("code") == SERVICE_RESTART and not self.transport.is_closing():
            super().shutdown()
        return message


def run_server(options: ServeOptions, part: Part) -> int:
    """Serve until a signal arrives, and return its number.

    part: the search
    Raises ResourceError if the address is in use, and UserError for invalid options or models.
    """
    service = Service(options, Models(options, part))
    with _listening(options) as listener:
        host, port = listener.getsockname()[:2]
        log.info(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}")
        return asyncio.run(_run(service, listener))


def _listening(options: ServeOptions) -> socket.socket:
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM
        )
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        reason = error.strerror or error
        raise ResourceError(
            f"--host {options.host} --port {options.port}: cannot listen on this address: {reason}"
        ) from None
    return listener


async def _run(service: Service, listener: socket.socket) -> int:
    config = uvicorn.Config(
        application(service),
        http=Connection,
        ws=SocketConnection,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=service.options.max_connections,
        timeout_graceful_shutdown=LAST_SECONDS,
        timeout_keep_alive=round(IDLE_SECONDS),
        ws_max_size=round(service.options.max_body * (1 << 20)),
    )
    server, received, loop = uvicorn.Server(config), [], asyncio.get_running_loop()
    is_ending, is_forced = asyncio.Event(), asyncio.Event()
    reloads: set[asyncio.Task[None]] = set()

    def end(number: signal.Signals) -> None:
        received.append(number)
        (is_forced if is_ending.is_set() else is_ending).set()
        server.should_exit = True

    def reload() -> None:
        task = asyncio.ensure_future(service.models.reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    async def serve() -> None:
        await server._serve([listener])  # `server.serve` would install its own signal handlers
        await service.models.close()

    for number in ENDING_SIGNALS:
        loop.add_signal_handler(number, partial(end, number))
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        if service.options.preload:
            for model in service.models.by_name.values():
                await unless(is_ending.wait(), model.load(PLAIN), ClosedError())
        # Not uvicorn's `force_exit`: it calls `wait_closed`, which since Python 3.12.1 waits for clients to disconnect.
        await unless(is_forced.wait(), serve(), ClosedError())
    except ClosedError:
        pass
    return received[0] if received else 0
