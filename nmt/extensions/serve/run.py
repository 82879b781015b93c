"""A server that runs until a signal ends it: sockets, signals, and the last answers."""

import asyncio
import signal
import socket
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from nmt.errors import ResourceError
from nmt.extensions.serve.app import application
from nmt.extensions.serve.calls import unless
from nmt.extensions.serve.metrics import Metrics
from nmt.extensions.serve.models import Models
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.scheduler import ClosedError
from nmt.extensions.serve.service import PLAIN, Service
from nmt.log import log
from nmt.options import Part

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
LAST_SECONDS = 10  # that requests get to end
BACKLOG = 2048
IDLE_SECONDS = 15.0  # of a connection
SERVICE_RESTART = 1012  # code to close a web socket with, of RFC 6455's registry


class Connection(H11Protocol):
    """A connection that is closed when its client has asked nothing, or read nothing, for some time.

    This includes a client that stops in the middle of a header.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._last: object = None
        self._unread_bytes = 0  # when writing was paused and nothing has been read since
        self.loop.call_later(IDLE_SECONDS, self._look)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread_bytes = 0

    def _look(self) -> None:
        """Close the connection if nothing has happened since the last look. A web socket sends pings of its own."""
        if self.transport.get_protocol() is not self:
            return
        unread_bytes = self.transport.get_write_buffer_size() if self.flow.write_paused else 0
        if unread_bytes and unread_bytes == self._unread_bytes:
            self.transport.abort()  # `close` waits until the client has read
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
    """A web socket that is closed, when the server ends, after the answers to the messages that it has received."""

    def shutdown(self) -> None:
        if self.close_sent:
            super().shutdown()
        else:  # the application receives it after those messages
            self.queue.put_nowait({"type": "websocket.disconnect", "code": SERVICE_RESTART})

    async def receive(self) -> Any:
        message = await super().receive()
        if message.get("code") == SERVICE_RESTART and not self.transport.is_closing():
            super().shutdown()
        return message


def run_server(options: ServeOptions, part: Part) -> int:
    """Serve until a signal, and return its number. part: the search

    Raises ResourceError for an address that is taken, UserError for options and models.
    """
    models = Models(options, part)
    service = Service(options, models, Metrics())
    with _listening(options) as listener:
        host, port = listener.getsockname()[:2]
        log.info(f"listening at http://{f'[{host}]' if ':' in host else host}:{port}")
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
        raise ResourceError(f"--host {options.host} --port {options.port}: cannot listen there: {reason}") from None
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
        # Not uvicorn's `force_exit`: it calls `wait_closed`, which from Python 3.12.1 on waits for clients to disconnect.
        await unless(is_forced.wait(), serve(), ClosedError())
    except ClosedError:
        pass
    return received[0] if received else 0
