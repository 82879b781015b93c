"""A server of translations in a process of its own, for tests."""

import http.client
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from conftest import ENVIRONMENT
from forks import forked_nmt


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
