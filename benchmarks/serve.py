"""Measure `nmt serve`: speed next to a plain server around CTranslate2, and next to hostile clients.

    python benchmarks/serve.py --model FOLDER --source test.en [--clients 1 8 64] [--beams 4 1] [--requests 50] [--rounds 6]
    python benchmarks/serve.py --model FOLDER --source test.en --long 1000            # short requests next to long ones
    python benchmarks/serve.py --model FOLDER --source test.en --abuse                # next to hostile clients (attacks.py)

FOLDER is an export for CTranslate2. Each client sends one line per request on a persistent connection, the next one after
the answer. Every answer is compared with that of `nmt translate`. In each round `nmt translate` translates the same lines,
then each number of clients asks the plain server (plain_server.py, which batches nothing) and nmt, in turn. A figure
is the median of the rounds, a ratio the median of the ratios within a round.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from attacks import ATTACKS
from models import NMT

PLAIN_SERVER = Path(__file__).with_name("plain_server.py")


@dataclass(frozen=True)
class Load:
    """Results of several clients.

    seconds: total time; latencies: milliseconds of each request, sorted; cpu: milliseconds of CPU time of the server per
    request; wrong: number of differing answers
    """

    seconds: float
    latencies: list[float]
    cpu: float
    wrong: int

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.latencies) / self.seconds

    def percentile(self, percent: int) -> float:
        """Milliseconds within which this share of the requests was answered."""
        return self.latencies[min(len(self.latencies) - 1, len(self.latencies) * percent // 100)]


@contextmanager
def started(command: Sequence[object]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server in a separate process, and its port."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(list(map(str, command)), stderr=log)
        try:
            port = None
            while port is None:
                time.sleep(0.1)
                if process.poll() is not None:
                    sys.exit("the server has ended")
                log.seek(0)
                port = re.search(rb"listening on http://[^:]*:(\d+)", log.read())
            number = int(port[1])
            asyncio.run(run_clients(process, number, [["hello"]], {}))  # waits until the model is loaded
            yield process, number
        finally:
            process.terminate()
            process.wait()


def search_flags(beam: int) -> list[str]:
    """The search of engine.py, as flags of nmt."""
    if beam == 1:
        return ["--decoder", "greedy"]
    return ["--beam-size", str(beam), "--stop", "full", "--length-penalty", "average", "--alpha", "1"]


@contextmanager
def server(model: Path, threads: int, search: Sequence[str] = ()) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`nmt serve`."""
    flags = ["--port", 0, "--threads", threads, "--no-access-log", "--preload", "--max-connections", 2000]
    with started([*NMT, "serve", "--model", model, *flags, *search]) as found:
        yield found


@contextmanager
def plain_server(model: Path, threads: int, beam: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The plain server."""
    with started([sys.executable, PLAIN_SERVER, model, beam, threads]) as found:
        yield found


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: str) -> str:
    """The translation of a line through the nmt protocol."""
    content = await exchange(reader, writer, json.dumps({"text": line}).encode())
    return str(json.loads(content)["translations"][0]["translation"])


async def exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    body: bytes,
    path: str = "/v1/translate",
    kind: str = "application/json",
) -> bytes:
    """Send a request, and return the body of the response. An empty body makes a GET request. kind: type of the body"""
    asked = f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
    writer.write(f"{asked}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    head = await reader.readuntil(b"\r\n\r\n")
    if length := re.search(rb"content-length: (\d+)", head, re.IGNORECASE):
        content = await reader.readexactly(int(length[1]))
    else:
        content = b""
        while size := int(await reader.readline(), 16):
            content += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise RuntimeError(content.decode())
    return content


async def run_clients(
    process: subprocess.Popen[bytes], port: int, texts: Sequence[Sequence[str]], expected: dict[str, str]
) -> Load:
    """Run one client per list of lines, all at the same time."""
    latencies: list[float] = []
    wrong = 0

    async def client(lines: Sequence[str]) -> None:
        nonlocal wrong
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for line in lines:
            began = time.monotonic()
            found = await ask(reader, writer, line)
            latencies.append(1000 * (time.monotonic() - began))
            wrong += found != expected.get(line, found)
        writer.close()

    began, cpu = time.monotonic(), cpu_seconds(process)
    await asyncio.gather(*map(client, texts))
    seconds, cpu = time.monotonic() - began, cpu_seconds(process) - cpu
    return Load(seconds, sorted(latencies), 1000 * cpu / len(latencies), wrong)


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def translated(options: argparse.Namespace, beam: int, lines: Sequence[str]) -> tuple[list[str], float]:
    """The translations by `nmt translate`, and its CPU time per line in milliseconds, without that of its start."""
    outputs: list[str] = []
    seconds = []
    for texts in (lines[:1], lines):
        source = "".join(f"{line}\n" for line in texts).encode()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [*NMT, "translate", "--model", options.model, "--threads", options.threads, "--quiet"]
        output = subprocess.run(
            [*map(str, command), *search_flags(beam)], input=source, stdout=subprocess.PIPE, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        outputs = output.stdout.decode().split("\n")[:-1]
    return outputs, 1000 * (seconds[1] - seconds[0]) / (len(lines) - 1)


def compare_loads(options: argparse.Namespace, lines: Sequence[str]) -> None:
    """Print a table of loads: the plain server and nmt, alternately."""
    print(
        f"{'beam':>4} {'clients':>7} {'server':<6} {'req/s':>7} {'ratio':>6} {'p50 ms':>7} {'p99 ms':>7} {'ratio':>6} ",
        end="",
    )
    print(f"{'CPU ms/line':>11} {'of translate':>12} {'wrong':>5}")
    for beam in options.beams:
        texts = [lines[i % len(lines)] for i in range(max(options.clients) * options.requests)]
        rows: dict[int, list[tuple[Load, Load, float]]] = {clients: [] for clients in options.clients}
        model, threads = options.model, options.threads
        with plain_server(model, threads, beam) as plain, server(model, threads, search_flags(beam)) as own:
            for _ in range(options.rounds):
                outputs, cpu = translated(options, beam, texts)
                expected = dict(zip(texts, outputs, strict=True))
                for clients in options.clients:
                    shares = [
                        texts[i::clients][: max(options.requests, options.minimum // clients)] for i in range(clients)
                    ]
                    loads = [asyncio.run(run_clients(*each, shares, expected)) for each in (plain, own)]
                    rows[clients].append((loads[0], loads[1], cpu))
        for clients, found in rows.items():
            plain_loads, own_loads, of_command = zip(*found, strict=True)
            for name, loads_of_it in (("plain", plain_loads), ("nmt", own_loads)):
                print(f"{beam:>4} {clients:>7} {name:<6} {summary(loads_of_it, plain_loads, of_command)}", flush=True)


def summary(own: Sequence[Load], plain: Sequence[Load], of_command: Sequence[float]) -> str:
    """The cells of one server, by round: its loads, those of the plain server, and the CPU time of `nmt translate`."""

    def middle(of: Callable[[Load], float]) -> float:
        return statistics.median(map(of, own))

    def ratio(of: Callable[[Load], float]) -> float:
        return statistics.median(of(load) / of(other) for load, other in zip(own, plain, strict=True))

    cpu_ratio = statistics.median(load.cpu / cpu for load, cpu in zip(own, of_command, strict=True))
    speed = f"{middle(lambda load: load.rate):7.0f} {ratio(lambda load: load.rate):6.2f}"
    p50, p99 = middle(lambda load: load.percentile(50)), middle(lambda load: load.percentile(99))
    latency = f"{p50:7.2f} {p99:7.2f} {ratio(lambda load: load.percentile(99)):6.2f}"
    return f"{speed} {latency} {middle(lambda load: load.cpu):11.2f} {cpu_ratio:12.2f} {sum(load.wrong for load in own):>5}"


def compare_next_to_long(options: argparse.Namespace, lines: Sequence[str]) -> None:
    """Print the latencies of one client with short requests, alone and next to a client with long ones."""
    short = [[lines[i % len(lines)] for i in range(options.requests)]]
    long = json.dumps({"text": [lines[i % len(lines)] for i in range(options.long)]}).encode()
    print(
        f"{'beam':>4} {'alone: p50 ms':>13} {'p99 ms':>7} {'next to: p50 ms':>14} {'p99 ms':>7} {'p50 ratio':>9} {'p99 ratio':>9}"
    )

    async def ask_long(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
        while True:
            await exchange(reader, writer, long)

    async def next_to_long(process: subprocess.Popen[bytes], port: int) -> Load:
        task = asyncio.create_task(ask_long(port))
        await asyncio.sleep(0.5)
        load = await run_clients(process, port, short, {})
        task.cancel()
        return load

    for beam in options.beams:
        rows = []
        with server(options.model, options.threads, search_flags(beam)) as (process, port):
            for _ in range(options.rounds):
                alone = asyncio.run(run_clients(process, port, short, {}))
                rows.append((alone, asyncio.run(next_to_long(process, port))))
        cells = [statistics.median(row[k].percentile(percent) for row in rows) for k in (0, 1) for percent in (50, 99)]
        ratios = [
            statistics.median(b.percentile(percent) / a.percentile(percent) for a, b in rows) for percent in (50, 99)
        ]
        print(
            f"{beam:>4} {cells[0]:13.2f} {cells[1]:7.2f} {cells[2]:14.2f} {cells[3]:7.2f} {ratios[0]:9.2f} {ratios[1]:9.2f}"
        )


def resident(process: subprocess.Popen[bytes]) -> float:
    """The resident memory of a process in MiB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def _attack(attack: Callable[[int], None], port: int) -> None:
    """Attack at the lowest priority, since real attackers do not compute on the server's processors."""
    os.nice(19)
    attack(port)


def abuse(options: argparse.Namespace, lines: Sequence[str]) -> None:
    """Print the latency of 8 clients next to each kind of hostile client, and the server's memory."""
    texts = [[lines[(i + j) % len(lines)] for j in range(options.requests)] for i in range(8)]
    with server(options.model, options.threads) as (process, port):
        print("next to  p50 ms  p99 ms  requests/s  wrong answers  MiB")
        for name, attack in {"nobody": None, **ATTACKS, "nobody again": None}.items():
            attackers = [
                multiprocessing.Process(target=_attack, args=(attack, port), daemon=True)
                for _ in range(4 if attack else 0)
            ]
            for attacker in attackers:
                attacker.start()
            time.sleep(2 if attack else 0)
            load = asyncio.run(run_clients(process, port, texts, {}))
            for attacker in attackers:
                attacker.kill()
                attacker.join()
            cuts = "  ".join(f"{load.latencies[len(load.latencies) * p // 100]:.1f}" for p in (50, 99))
            print(f"{name}  {cuts}  {load.rate:,.0f}  {load.wrong}  {resident(process):.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--minimum", type=int, default=200, help="minimum number of requests per load")
    parser.add_argument("--beams", type=int, nargs="+", default=[4, 1])
    parser.add_argument("--long", type=int, help="number of texts of the long requests")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--abuse", action="store_true")
    options = parser.parse_args()
    lines = [line for line in options.source.read_text().split("\n") if line.strip()]
    if options.abuse:
        abuse(options, lines)
    elif options.long:
        compare_next_to_long(options, lines)
    else:
        compare_loads(options, lines)


if __name__ == "__main__":
    main()
