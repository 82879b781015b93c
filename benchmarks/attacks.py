"""Hostile clients of `nmt serve`, each an endless function in a process of its own (`serve.py --abuse`)."""

import resource
import socket
from collections.abc import Callable
from contextlib import suppress

HEAD = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
FLOOD_CONNECTIONS = 3000
MANY = 1 << 14  # how often a connection repeats its data


def _send(port: int, first: bytes, repeated: bytes, times: int = MANY) -> None:
    """Send data over one connection until the server closes it, and read what it answers."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(first)
        for _ in range(times):
            connection.sendall(repeated)
        while connection.recv(1 << 16):
            pass


def _flood(port: int, first: bytes) -> None:
    """Hold thousands of connections, each with the start of a request."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * FLOOD_CONNECTIONS)), hard))
    held: list[socket.socket] = []
    while True:
        with suppress(OSError):
            held.append(socket.create_connection(("127.0.0.1", port), 10))
            held[-1].sendall(first)
        if len(held) > FLOOD_CONNECTIONS:
            held.pop(0).close()


def _again(first: bytes, repeated: bytes, times: int = MANY) -> Callable[[int], None]:
    def attack(port: int) -> None:
        while True:
            _send(port, first, repeated, times)

    return attack


ATTACKS: dict[str, Callable[[int], None]] = {
    "3,000 idle connections": lambda port: _flood(port, b""),
    "3,000 half headers": lambda port: _flood(port, HEAD),
    "3,000 half bodies": lambda port: _flood(port, HEAD + b"Content-Length: 1000\r\n\r\n{"),
    "bodies of 1 GiB": _again(HEAD + b"Content-Length: 1073741824\r\n\r\n", b"x" * (1 << 16)),
    "bodies of 1 GiB in chunks": _again(CHUNKED, b"10000\r\n" + b"x" * (1 << 16) + b"\r\n"),
    "chunks of one byte": _again(CHUNKED, b"1\r\nx\r\n" * 10_000),
    "endless headers": _again(HEAD, b"X: y\r\n" * 1000),
    "both lengths": _again(HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", b"0\r\n\r\n", 1),
    "3,000 requests at once": _again(b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3000, 1),
    "forged hosts": _again(b"", b"GET /health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 1),
}
