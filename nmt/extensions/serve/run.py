"""Runs the server until a signal stops it; handles sockets, signals and the last responses."""

import asyncio
import logging
import signal
import socket
import time
from contextlib import suppress
from functools import partial
from typing import Final

import uvicorn

from nmt.errors import ResourceError, one_line
from nmt.extensions.serve.access import trusted_proxies
from nmt.extensions.serve.app import application
from nmt.extensions.serve.calls import unless
from nmt.extensions.serve.connections import BACKLOG, IDLE_SECONDS, Connection, SocketConnection, open_door
from nmt.extensions.serve.models import Models
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.scheduler import ClosedError
from nmt.extensions.serve.service import PLAIN, Service
from nmt.log import log
from nmt.options import Part

ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
LAST_SECONDS: Final = 10  # time for current requests to finish after a signal
QUIET_SECONDS: Final = 60.0  # a message of the web server is not repeated within this time


class ServerMessages(logging.Handler):
    """Writes the messages of libraries to the log, each kind only once a minute, because clients can cause them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._written: dict[tuple[str, int], float] = {}  # by the line of code that wrote the message

    def emit(self, record: logging.LogRecord) -> None:
        kind, now = (record.pathname, record.lineno), time.monotonic()
        if now - self._written.get(kind, -QUIET_SECONDS) < QUIET_SECONDS:
            return
        self._written[kind] = now
        text = record.getMessage().partition("\n")[0]
        cause = record.exc_info[1] if record.exc_info else None
        reason = f": {type(cause).__name__}: {cause}" if cause is not None else ""
        log.warn(one_line(f"{text}{reason} (further messages of this kind in the next minute are not shown)"))


def run_server(options: ServeOptions, part: Part) -> int:
    """Serve until a signal arrives, and return its number.

    part: the search
    Raises ResourceError if the address is in use, and UserError for invalid options or models.
    """
    proxies = trusted_proxies(options)
    service = Service(options, Models(options, part))
    server = _web_server(service, proxies)
    logging.getLogger().handlers = [ServerMessages()]
    with _listening(options) as listener:
        host, port = listener.getsockname()[:2]
        log.info(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}")
        return asyncio.run(_Shift(service, server).work(listener))


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


def _web_server(service: Service, proxies: list[str]) -> uvicorn.Server:
    """uvicorn's server, with nmt's application and connections. proxies: whose X-Forwarded-For is trusted"""
    door = open_door(service.options.max_connections)
    config = uvicorn.Config(
        application(service),
        http=partial(Connection, door),  # type: ignore[arg-type]
        ws=partial(SocketConnection, door),  # type: ignore[arg-type]
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        backlog=BACKLOG,
        timeout_graceful_shutdown=LAST_SECONDS,
        timeout_keep_alive=round(IDLE_SECONDS),
        ws_max_size=service.options.max_body_bytes,
    )
    return uvicorn.Server(config)


class _Shift:
    """A server's work from its start until a signal ends it.

    received: the signals so far that end it
    """

    def __init__(self, service: Service, server: uvicorn.Server) -> None:
        self.service, self.server, self.received = service, server, list[signal.Signals]()
        self._is_ending, self._is_forced, self._must_reload = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(self, listener: socket.socket) -> int:
        """Serve until a signal arrives, and return its number. A second signal does not wait for the last responses."""
        loop = asyncio.get_running_loop()
        for number in ENDING_SIGNALS:
            loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGHUP, self._must_reload.set)
        reloading = asyncio.ensure_future(self._reload())
        with suppress(ClosedError):
            # Not uvicorn's `force_exit`: it calls `wait_closed`, which since Python 3.12.1 waits for clients to disconnect.
            await unless(self._is_forced.wait(), self._serve(listener), ClosedError())
        reloading.cancel()
        return self.received[0] if self.received else 0

    def _end(self, number: signal.Signals) -> None:
        self.received.append(number)
        (self._is_forced if self._is_ending.is_set() else self._is_ending).set()
        self.server.should_exit = True
        self.service.not_ready = "the server is shutting down"

    async def _reload(self) -> None:
        while await self._must_reload.wait():  # once for all signals that arrive during a reload
            self._must_reload.clear()
            self.service.gate.reload()
            await self.service.models.reload()

    async def _preload(self) -> None:
        """Load all models. If one cannot be loaded, the server ends."""
        self.service.not_ready = "the models are being loaded"
        try:
            for model in self.service.models.by_name.values():
                await unless(self._is_ending.wait(), model.load(PLAIN), ClosedError())
        except Exception:
            self.server.should_exit = True
            raise
        self.service.not_ready = ""

    async def _serve(self, listener: socket.socket) -> None:
        loading = asyncio.ensure_future(self._preload()) if self.service.options.preload else None
        await self.server._serve([listener])  # `server.serve` would install its own signal handlers
        if loading is not None:
            await loading  # raises the error of a model
        await self.service.models.close()
