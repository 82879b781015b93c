"""A server of translations in a process of its own, for tests."""

import base64
import http.client
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from conftest import ENVIRONMENT
from forks import forked_nmt

LATE = """
from nmt import register
from nmt.decoders.base import SearchOptions
from nmt.decoders.greedy import Greedy
import time
from pathlib import Path

@register("decoder", "late", SearchOptions)
class Late(Greedy):
    "Greedy search, late."
    def __init__(self, *given):
        (Path(__file__).parent / "loading").touch()
        time.sleep({loading})
        super().__init__(*given)
    def decode(self, *given):
        (Path(__file__).parent / "searching").touch()
        time.sleep({searching})
        return super().decode(*given)
"""


def late_search(folder: Path, loading: float = 0, searching: float = 0) -> list[object]:
    """Flags for a search that takes this many seconds to load and per batch. It touches a file at the start of each."""
    plugin = folder / "late.py"
    plugin.write_text(LATE.format(loading=loading, searching=searching))
    return ["--plugin", plugin, "--decoder=late"]


def wait_until(condition: Callable[[], object]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("never")


class Server:
    """A server in a process of its own."""

    def __init__(self, process: subprocess.Popen, log: Path, port: int) -> None:
        self.process, self.log, self.port = process, log, port

    def ask(self, method: str, path: str, body: bytes | dict | None = None, **headers: str) -> tuple[int, object, dict]:
        """(status, content, headers); the content as JSON if it is."""
        if isinstance(body, dict):
            body, headers = json.dumps(body).encode(), {"content-type": "application/json", **headers}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        found = {name.lower(): value for name, value in answer.getheaders()}
        is_json = found.get("content-type", "").startswith("application/json")
        return answer.status, json.loads(content) if is_json else content, found

    def translate(self, **fields: object) -> object:
        status, content, _ = self.ask("POST", "/v1/translate", fields)
        assert status == 200, content
        return content


@contextmanager
def serving(
    folder: Path,
    *flags: object,
    engine: str = "torch",
    environment: Mapping[str, str] = MappingProxyType({}),
    program: Sequence[str] = (),
) -> Iterator[Server]:
    """A server that is killed at the end. folder: of its log; environment: further variables; program: the command `nmt`"""
    log = folder / "server.log"
    with log.open("wb") as file:
        command = [
            *(program or [forked_nmt()]),
            "serve",
            "--port=0",
            "--threads=1",
            f"--engine={engine}",
            *map(str, flags),
        ]
        process = subprocess.Popen(command, stderr=file, stdout=file, env={**ENVIRONMENT, **environment})
    try:
        wait_until(lambda: b"listening on" in log.read_bytes() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield Server(process, log, int(re.search(r"listening on http://127.0.0.1:(\d+)", log.read_text())[1]))
    finally:
        process.kill()
        process.wait()


def raw(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), 60)


def web_socket(port: int, path: str = "/translate", headers: str = "") -> socket.socket:
    """A web socket after its handshake (RFC 6455)."""
    connection = socket.create_connection(("127.0.0.1", port), 60)
    key = base64.b64encode(os.urandom(16)).decode()
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{headers}"
    connection.sendall(f"{head}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(1)
    assert b"101" in answer.split(b"\r\n")[0]
    return connection


def send_text(connection: socket.socket, text: bytes) -> None:
    assert len(text) < 126
    connection.sendall(bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text)


def receive_frame(connection: socket.socket) -> tuple[int, bytes]:
    """(opcode, content)"""

    def exactly(size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = connection.recv(size - len(found))
            assert part
            found += part
        return found

    first, size = exactly(2)
    size = int.from_bytes(exactly(2)) if size == 126 else size
    return first & 15, exactly(size)
