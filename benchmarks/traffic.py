"""Measure `nmt serve` under mixed traffic: memory, latency, and answers that were lost or that belong to another request.

    python benchmarks/traffic.py --model FOLDER --source test.en --minutes 30

Clients of all protocols ask at the same time, and compare each answer with that of a quiet server, which itself is compared with
`nmt translate`. Other clients send invalid requests, or disconnect before the answer. Every minute, the server reloads its
model after a HUP signal, and a line of the table appears.
"""

import argparse
import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from serve import cpu_seconds, exchange, resident, search_flags, server, translated
from websockets.asyncio.client import connect

Ask = Callable[[int, list[str]], Awaitable[list[str]]]
"""A client (port, lines) that asks for the translations of lines."""

LINES = 20  # of a request with many lines
PER_KIND = 3  # clients that ask in the same way at the same time
MARK = b"\r\n--mark"


async def post(port: int, path: str, body: Any, kind: str = "application/json") -> bytes:
    """The body of the response to one request, on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    try:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await exchange(reader, writer, content, path, kind)
    finally:
        writer.close()


async def own(port: int, lines: list[str]) -> list[str]:
    answer = json.loads(await post(port, "/v1/translate", {"text": lines}))
    return [row["translation"] for row in answer["translations"]]


async def own_stream(port: int, lines: list[str]) -> list[str]:
    events = (await post(port, "/v1/translate", {"text": lines, "stream": True})).decode()
    rows = [json.loads(data) for data in re.findall(r"event: translation\ndata: (.*)", events)]
    return [row["translation"] for row in sorted(rows, key=lambda row: row["index"])]


async def deepl(port: int, lines: list[str]) -> list[str]:
    fields = {"text": lines, "source_lang": "EN", "target_lang": "DE"}
    return [row["text"] for row in json.loads(await post(port, "/v2/translate", fields))["translations"]]


async def libretranslate(port: int, lines: list[str]) -> list[str]:
    fields = {"q": lines, "source": "auto", "target": "de"}
    return list(json.loads(await post(port, "/translate", fields))["translatedText"])


def conversation(lines: list[str], stream: bool = False) -> dict[str, Any]:
    """A request in OpenAI's protocol."""
    return {"model": "en-de", "messages": [{"role": "user", "content": "\n".join(lines)}], "stream": stream}


async def openai(port: int, lines: list[str]) -> list[str]:
    answer = json.loads(await post(port, "/v1/chat/completions", conversation(lines)))
    return str(answer["choices"][0]["message"]["content"]).split("\n")


async def openai_stream(port: int, lines: list[str]) -> list[str]:
    events = (await post(port, "/v1/chat/completions", conversation(lines, stream=True))).decode()
    chunks = [json.loads(data)["choices"] for data in re.findall(r"^data: (\{.*)", events, re.MULTILINE)]
    return "".join(choice["delta"].get("content", "") for choices in chunks for choice in choices).split("\n")


async def marian(port: int, lines: list[str]) -> list[str]:
    async with connect(f"ws://127.0.0.1:{port}/translate") as socket:
        await socket.send("\n".join(lines))
        return str(await socket.recv()).split("\n")


async def document(port: int, lines: list[str]) -> list[str]:
    """A text file, uploaded with the calls of LibreTranslate and then downloaded."""
    text = "\n".join(lines).encode()
    head = b'\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\n'
    fields = [
        b'\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s' % pair
        for pair in ((b"source", b"en"), (b"target", b"de"))
    ]
    body = (MARK + head + text + MARK + MARK.join(fields) + MARK + b"--\r\n").removeprefix(b"\r\n")
    answer = json.loads(await post(port, "/translate_file", body, "multipart/form-data; boundary=mark"))
    path = answer["translatedFileUrl"].split("/", 3)[3]
    return (await post(port, f"/{path}", b"")).decode().split("\n")


KINDS: dict[str, tuple[Ask, int]] = {
    "nmt": (own, 1),
    "nmt, many lines": (own, LINES),
    "nmt, stream": (own_stream, LINES),
    "deepl": (deepl, 2),
    "libretranslate": (libretranslate, 2),
    "openai": (openai, 1),
    "openai, stream": (openai_stream, 4),
    "marian": (marian, 2),
    "document": (document, LINES),
}
"""The clients, and the number of lines of each request."""


class Traffic:
    """Counts the requests of all clients, until a time by `time.monotonic`."""

    def __init__(self, port: int, lines: Sequence[str], end: float) -> None:
        self.port, self.lines, self.end = port, lines, end
        self.latencies: list[float] = []
        self.requests, self.wrong, self.failed = 0, 0, 0
        self.expected: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}

    async def learn(self, of_command: dict[str, str]) -> None:
        """Ask for every line with each kind of client. Clients that send lines must get the translations of `nmt translate`."""
        for kind, (ask, _) in KINDS.items():
            for start in range(0, len(self.lines), LINES):
                part = list(self.lines[start : start + LINES])
                self.expected[kind] |= dict(zip(part, await ask(self.port, part), strict=True))
            if kind in ("nmt", "marian") and self.expected[kind] != of_command:
                sys.exit(f"{kind}: other translations than those of nmt translate")

    async def client(self, kind: str) -> None:
        ask, count = KINDS[kind]
        while time.monotonic() < self.end:
            lines = random.sample(list(self.lines), count)
            began = time.monotonic()
            try:
                found = await ask(self.port, lines)
            except (OSError, RuntimeError, ValueError, KeyError, asyncio.IncompleteReadError) as error:
                self.failed += 1
                print(f"{kind}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            self.latencies.append(1000 * (time.monotonic() - began))
            self.requests += 1
            self.wrong += found != [self.expected[kind][line] for line in lines]
            await asyncio.sleep(random.expovariate(20))

    async def rude(self) -> None:
        """Send an invalid request, or disconnect before the answer."""
        body = json.dumps({"text": list(self.lines[:LINES])}).encode()
        whole = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        while time.monotonic() < self.end:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(random.choice([whole, whole[: len(whole) // 2], whole.replace(b"{", b"["), b"\x00" * 100]))
                await asyncio.sleep(random.expovariate(100))
                writer.transport.abort()

    async def report(self, process: subprocess.Popen[bytes], minutes: int) -> None:
        """Print a line per minute, and let the server reload its model."""
        print("minute  requests  wrong  failed  p50 ms  p99 ms  MiB  CPU s", flush=True)
        for minute in range(1, minutes + 1):
            await asyncio.sleep(60)
            self.latencies.sort()
            cuts = "  ".join(f"{self.latencies[len(self.latencies) * p // 100]:6.0f}" for p in (50, 99))
            row = f"{minute:6}  {self.requests:8,}  {self.wrong:5}  {self.failed:6}  {cuts}"
            print(f"{row}  {resident(process):3.0f}  {cpu_seconds(process):5.0f}", flush=True)
            self.latencies.clear()
            process.send_signal(signal.SIGHUP)

    async def run(self, process: subprocess.Popen[bytes], minutes: int) -> None:
        clients = [self.client(kind) for kind in KINDS for _ in range(PER_KIND)]
        await asyncio.gather(*clients, self.rude(), self.rude(), self.report(process, minutes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    texts = [line for line in options.source.read_text().split("\n") if line.strip()]
    lines = list(dict.fromkeys(texts))[:200]
    outputs, _ = translated(options, 4, lines)
    with server(options.model, options.threads, search_flags(4)) as (process, port):
        traffic = Traffic(port, lines, time.monotonic() + 60 * options.minutes)
        asyncio.run(traffic.learn(dict(zip(lines, outputs, strict=True))))
        traffic.end = time.monotonic() + 60 * options.minutes
        asyncio.run(traffic.run(process, options.minutes))
    if traffic.wrong or traffic.failed:
        sys.exit(f"{traffic.wrong} wrong answers, {traffic.failed} failed requests")


if __name__ == "__main__":
    main()
