"""Measure `nmt serve`: throughput compared with `nmt translate`, latency by load, memory over many requests, abuse.

    python benchmarks/serve.py --model FOLDER --source test.en [--clients 1 8 64] [--requests 50] [--rounds 3] [--threads 1]
    python benchmarks/serve.py --model FOLDER --source test.en --endurance 100000     # requests by 64 clients, memory
    python benchmarks/serve.py --model FOLDER --source test.en --abuse                # slow connections, bodies of 1 GB

Each client sends one line per request on a persistent connection, the next one after the answer. Every answer is
compared with that of `nmt translate`. In each round the command translates the same lines, then each number of clients
does, one after the other; the figure for a load is the median of its rounds, its ratio the median of the ratios within a
round. The time of the command is that between its first and last line (`--stats`), without its start.
"""

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from models import NMT

PERCENTILES = (50, 95, 99)
SLOW_CONNECTIONS = 300
HUGE_BODY_BYTES = 1 << 30
CHUNK = b"x" * (1 << 16)


@dataclass(frozen=True)
class Load:
    """Results of several clients. seconds: total time; latencies: seconds per request; wrong: number of differing answers"""

    seconds: float
    latencies: list[float]
    wrong: int


@contextmanager
def server(model: Path, threads: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server in a separate process, and its port."""
    with tempfile.TemporaryFile() as log:
        flags = ["--port", "0", "--threads", str(threads), "--no-access-log", "--preload", "--max-connections", "2000"]
        process = subprocess.Popen([*NMT, "serve", "--model", str(model), *flags], stderr=log)
        try:
            port = None
            while port is None:
                time.sleep(0.1)
                if process.poll() is not None:
                    sys.exit("the server has ended")
                log.seek(0)
                port = re.search(rb"listening on http://[^:]*:(\d+)", log.read())
            number = int(port[1])
            asyncio.run(run_clients(number, [["hello"]], {}))  # waits until the model is loaded
            yield process, number
        finally:
            process.terminate()
            process.wait()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: str) -> str:
    """The translation of a line through the nmt protocol."""
    body = json.dumps({"text": line}).encode()
    writer.write(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])  # type: ignore[index]
    content = await reader.readexactly(length)
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise RuntimeError(content.decode())
    return str(json.loads(content)["translations"][0]["translation"])


async def run_clients(port: int, texts: Sequence[Sequence[str]], expected: dict[str, str]) -> Load:
    """Run one client per list of lines, all at the same time."""
    latencies: list[float] = []
    wrong = 0

    async def client(lines: Sequence[str]) -> None:
        nonlocal wrong
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for line in lines:
            began = time.monotonic()
            found = await ask(reader, writer, line)
            latencies.append(time.monotonic() - began)
            wrong += found != expected.get(line, found)
        writer.close()

    began = time.monotonic()
    await asyncio.gather(*map(client, texts))
    return Load(time.monotonic() - began, latencies, wrong)


def translated(model: Path, lines: Sequence[str], threads: int) -> tuple[list[str], float]:
    """The translations by `nmt translate`, and lines per second."""
    with tempfile.TemporaryDirectory() as folder:
        source, stats = Path(folder) / "source", Path(folder) / "stats"
        source.write_text("".join(f"{line}\n" for line in lines))
        command = [
            *NMT,
            "translate",
            "--model",
            model,
            "--input",
            source,
            "--stats",
            stats,
            "--threads",
            threads,
            "--quiet",
        ]
        output = subprocess.run(list(map(str, command)), capture_output=True, check=True).stdout
        return output.decode().split("\n")[:-1], float(json.loads(stats.read_text())["lines_per_second"])


def compare_loads(options: argparse.Namespace, lines: Sequence[str]) -> None:
    """Print a table of loads."""
    count = max(options.clients) * options.requests
    texts = [lines[i % len(lines)] for i in range(count)]
    ratios: dict[int, list[float]] = {clients: [] for clients in options.clients}
    loads: dict[int, list[Load]] = {clients: [] for clients in options.clients}
    speeds = []
    with server(options.model, options.threads) as (_, port):
        for _ in range(options.rounds):
            outputs, speed = translated(options.model, texts, options.threads)
            speeds.append(speed)
            expected = dict(zip(texts, outputs, strict=True))
            for clients in options.clients:
                shares = [texts[i::clients][: options.requests] for i in range(clients)]
                load = asyncio.run(run_clients(port, shares, expected))
                loads[clients].append(load)
                ratios[clients].append(len(load.latencies) / load.seconds / speed)
    print(f"nmt translate: {statistics.median(speeds):,.0f} lines/s, the same {count:,} lines")
    print("clients  requests/s  vs nmt translate  " + "  ".join(f"p{p} ms" for p in PERCENTILES) + "  wrong answers")
    for clients, of_load in loads.items():
        rate = statistics.median(len(load.latencies) / load.seconds for load in of_load)
        latencies = sorted(1000 * latency for load in of_load for latency in load.latencies)
        cuts = "  ".join(f"{latencies[min(len(latencies) - 1, len(latencies) * p // 100)]:6.1f}" for p in PERCENTILES)
        wrong = sum(load.wrong for load in of_load)
        print(f"{clients:7}  {rate:10,.1f}  {statistics.median(ratios[clients]):16.2f}  {cuts}  {wrong}")


def resident(process: subprocess.Popen[bytes]) -> float:
    """The resident memory of a process in MiB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def endure(options: argparse.Namespace, lines: Sequence[str]) -> None:
    """Print the memory after each tenth of many requests."""
    clients = max(options.clients)
    share = options.endurance // 10 // clients
    with server(options.model, options.threads) as (process, port):
        print("requests  requests/s  MiB")
        for tenth in range(10):
            texts = [[lines[(i + j) % len(lines)] for j in range(share)] for i in range(clients)]
            load = asyncio.run(run_clients(port, texts, {}))
            print(
                f"{(tenth + 1) * share * clients:8,}  {share * clients / load.seconds:10,.0f}  {resident(process):.0f}",
                flush=True,
            )


def abuse(options: argparse.Namespace, lines: Sequence[str]) -> None:
    """Print the speed of clients next to slow connections and endless bodies, and the server's memory."""

    async def slow(port: int) -> list[asyncio.StreamWriter]:
        writers = []
        for _ in range(SLOW_CONNECTIONS):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
            writers.append(writer)
        return writers

    async def huge(port: int, in_chunks: bool) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        length = b"Transfer-Encoding: chunked" if in_chunks else b"Content-Length: %d" % HUGE_BODY_BYTES
        writer.write(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\n" + length + b"\r\n\r\n")
        try:
            for _ in range(HUGE_BODY_BYTES // len(CHUNK)):
                writer.write(b"%x\r\n" % len(CHUNK) + CHUNK + b"\r\n" if in_chunks else CHUNK)
                await writer.drain()
        except OSError:
            pass
        try:
            return (await asyncio.wait_for(reader.read(100), 10)).split(b"\r\n")[0].decode()
        except OSError:
            return "connection reset"

    async def work(port: int) -> tuple[Load, Load, list[str]]:
        texts = [[lines[(i + j) % len(lines)] for j in range(options.requests)] for i in range(8)]
        before = await run_clients(port, texts, {})
        writers = await slow(port)
        after, *answers = await asyncio.gather(
            run_clients(port, texts, {}), *(huge(port, i % 2 == 0) for i in range(4))
        )
        for writer in writers:
            writer.close()
        return before, after, answers

    with server(options.model, options.threads) as (process, port):
        memory = resident(process)
        before, after, answers = asyncio.run(work(port))
        rates = [len(load.latencies) / load.seconds for load in (before, after)]
        print(f"8 clients alone: {rates[0]:,.0f} requests/s, {memory:.0f} MiB")
        beside = f"{SLOW_CONNECTIONS} slow connections and 4 bodies of 1 GiB, two in chunks"
        print(f"next to {beside}: {rates[1]:,.0f} requests/s, {resident(process):.0f} MiB")
        print("answers to the bodies:", sorted(answers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--endurance", type=int)
    parser.add_argument("--abuse", action="store_true")
    options = parser.parse_args()
    lines = [line for line in options.source.read_text().split("\n") if line.strip()]
    if options.endurance:
        endure(options, lines)
    elif options.abuse:
        abuse(options, lines)
    else:
        compare_loads(options, lines)


if __name__ == "__main__":
    main()
