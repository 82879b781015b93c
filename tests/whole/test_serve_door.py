"""`nmt serve` at its door: floods, forged headers, foreign pages, odd bodies, signals during the start."""

import gzip
import json
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import ENVIRONMENT, WORDS, small_model
from refusals import assert_refused
from servers import late_search, raw, receive_frame, send_text, serving, wait_until, web_socket

from nmt.errors import UserError
from nmt.extensions.serve.access import Access
from nmt.extensions.serve.connections import Door
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.problems import ProblemError

LINE = " ".join(WORDS[:3])
HEAD = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("door")


@pytest.fixture(scope="module")
def model(folder):
    return small_model(folder / "m", d_model=16, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1)


@pytest.fixture(scope="module")
def server(folder, model):
    with serving(folder, "--model", model, "--max-body=0.5") as made:
        yield made


def answer_of(connection: socket.socket) -> bytes:
    """Everything that the server sends until it closes the connection."""
    found = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            found += part
    return found


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


# Connections


def test_a_flood_of_idle_connections_shuts_nobody_out(model, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4000:
        pytest.skip("needs 4,000 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4000, hard))
    try:
        program = ["bash", "-c", f'ulimit -n 1024; exec {sys.executable} -m nmt "$@"', "nmt"]
        with serving(tmp_path, "--model", model, program=program) as server, ExitStack() as stack:
            server.translate(text=LINE)
            for number in range(1500):
                connection = stack.enter_context(raw(server))
                if number % 2:
                    connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
                elif number % 3:
                    connection.sendall(b"GET /hea")
                if number % 300 == 299:
                    assert server.ask("GET", "/health")[0] == 200
            assert server.translate(text=LINE)["translations"]
            log = server.log.read_text()
            assert "allows only 768 connections" in log and "Traceback" not in log
            assert len([line for line in log.splitlines() if "499" not in line]) < 20
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_full_server_closes_idle_connections_of_the_busiest_address_first():
    ends: list[str] = []

    class Fake(SimpleNamespace):
        __hash__ = object.__hash__

    def entering(name: str, address: str, is_idle: bool = True, is_unused: bool = False) -> bool:
        transport = SimpleNamespace(abort=partial(ends.append, name))
        return door.enter(Fake(address=address, is_idle=is_idle, is_unused=is_unused, transport=transport))

    door = Door(4)
    assert entering("one", "honest") and entering("busy", "flood", is_idle=False)
    assert entering("used", "flood") and entering("unused", "flood", is_unused=True)
    assert entering("two", "honest") and ends == ["unused"]
    assert entering("three", "honest") and ends == ["unused", "one"] and door.count == 4
    door = Door(1)
    assert entering("busy", "flood", is_idle=False) and not entering("refused", "honest")


def test_a_server_whose_connections_are_all_in_use_refuses_others_with_503(model, tmp_path):
    with (
        serving(tmp_path, "--model", model, "--max-connections=2", *late_search(tmp_path, searching=30)) as server,
        ExitStack() as stack,
    ):
        body = json.dumps({"text": LINE}).encode()
        for _ in range(2):
            connection = stack.enter_context(raw(server))
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_until((tmp_path / "searching").exists)
        time.sleep(0.5)
        for _ in range(20):
            with raw(server) as connection:
                assert b" 503 " in answer_of(connection).split(b"\r\n")[0]
        assert server.log.read_text().count("\n") < 10


def test_an_idle_web_socket_gives_way_to_others(model, tmp_path):
    with ExitStack() as stack:
        server = stack.enter_context(serving(tmp_path, "--model", model, "--max-connections=2"))
        one, two = (stack.enter_context(web_socket(server.port)) for _ in range(2))
        send_text(one, LINE.encode())
        assert receive_frame(one)[0] == 1
        assert server.translate(text=LINE)["translations"]
        wait_until(lambda: is_closed(two))
        assert not is_closed(one)


def test_a_half_closed_connection_ends_and_a_second_request_behind_the_first_is_answered(server):
    body = json.dumps({"text": LINE}).encode()
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with raw(server) as connection:
        connection.sendall(request * 3 + request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert answer_of(connection).count(b"HTTP/1.1 200 OK") == 4
    with raw(server) as connection:
        connection.sendall(request * 200)
        assert answer_of(connection).count(b"HTTP/1.1 200 OK") < 200
    with raw(server) as connection:
        connection.sendall(HEAD)
        connection.shutdown(socket.SHUT_WR)
        assert answer_of(connection) == b""
    assert server.translate(text=LINE)["translations"]


# Requests that are no requests


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"X: " + b"x" * 100_000 + b"\r\n",
        b"".join(b"X-%d: x\r\n" % i for i in range(10_000)),
        b"X-\xff: \x01\x00\r\n",
    ],
    ids=["both-lengths", "both-lengths-turned", "two-lengths", "gzip", "long-header", "many-headers", "bytes"],
)
def test_an_ambiguous_or_huge_head_closes_the_connection(server, headers):
    with raw(server) as connection:
        with suppress(ConnectionError):
            connection.sendall(HEAD + headers + b"\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" not in answer_of(connection)
    assert server.ask("GET", "/health")[0] == 200


def test_endless_headers_and_trailers_are_cut_off(server):
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    for start in (HEAD, HEAD + b"X: ", chunked + b"0\r\n", chunked + b"0\r\nX: ", chunked + b"5;", b"GET /"):
        with raw(server) as connection:
            connection.sendall(start)
            with pytest.raises(OSError):
                for _ in range(10_000):
                    connection.sendall(b"x" * 1000 if start[-1:] != b"\n" else b"X-Y: z\r\n" * 100)
    assert server.ask("GET", "/health")[0] == 200


def test_closed_connections_leave_nothing_in_memory(server):
    def resident() -> int:
        return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    for first in (HEAD, HEAD + b"Transfer-Encoding: chunked\r\n\r\n"):
        before = 0
        for number in range(150):
            with raw(server) as connection, suppress(OSError):
                connection.sendall(first + (b"X: y\r\n" if first == HEAD else b"1\r\nx\r\n") * 50_000)
                answer_of(connection)
            before = resident() if number == 50 else before
        assert resident() - before < 50 << 20


def test_a_client_that_offers_http_2_is_answered_in_http_1(server):
    """Java's client does so, with the body right behind the headers."""
    body = json.dumps({"text": LINE}).encode()
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"
    for cut in (10, len(HEAD) + 5, -5, -1):
        with raw(server) as connection:
            request = HEAD + offer + b"Content-Length: %d\r\n\r\n" % len(body) + body
            connection.sendall(request[:cut])
            time.sleep(0.05)
            connection.sendall(request[cut:] + b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = answer_of(connection)
        assert answer.count(b"HTTP/1.1 200 OK") == 2 and b'"translations"' in answer
    with raw(server) as connection:
        connection.sendall(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 400 " in answer_of(connection)


def test_a_body_in_chunks_of_one_byte_delays_nobody(server):
    small = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    text = json.dumps({"text": LINE}).encode()
    with raw(server) as connection:  # a few of them are fine
        connection.sendall(small + b"".join(b"1\r\n%c\r\n" % byte for byte in text) + b"0\r\n\r\n")
        assert b"200 OK" in connection.recv(65536)
    with ExitStack() as stack:
        for _ in range(4):
            connection = stack.enter_context(raw(server))
            with suppress(OSError):
                connection.sendall(small + b"1\r\nx\r\n" * 200_000)
        assert server.ask("GET", "/health")[0] == 200


def test_invalid_utf_8_closes_a_web_socket_without_a_traceback(server):
    for _ in range(5):
        with web_socket(server.port) as connection:
            send_text(connection, b"\xff\xfe")
            opcode, content = receive_frame(connection)
            assert (opcode, content[:2]) == (8, (1007).to_bytes(2))
    log = server.log.read_text()
    assert "Traceback" not in log and log.count("Invalid UTF-8") == 1


def test_malformed_forms_do_not_fill_the_log(server):
    for length in range(1, 21):
        body = b"--" + b"x" * length + b"y\r\n\r\n"
        kind = f"multipart/form-data; boundary={'x' * (length + 3)}"
        assert server.ask("POST", "/translate", body, content_type=kind)[0] == 400
    assert server.log.read_text().count("Expected boundary character") == 1


# Bodies


def test_bodies_may_be_compressed_with_gzip(server):
    body = json.dumps({"text": LINE}).encode()
    status, content, _ = server.ask("POST", "/v1/translate", gzip.compress(body), content_encoding="gzip")
    assert status == 200 and content == server.translate(text=LINE)
    status, content, headers = server.ask("POST", "/v1/translate", body, content_encoding="br")
    assert status == 415 and "gzip" in content["error"]["message"] and headers["accept-encoding"] == "gzip"
    assert server.ask("POST", "/v1/translate", body, content_encoding="identity")[0] == 200
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) < 100_000 and server.ask("POST", "/v1/translate", bomb, content_encoding="gzip")[0] == 413
    for damaged in (body, gzip.compress(body)[:-9], gzip.compress(body) + b"x"):
        assert server.ask("POST", "/v1/translate", damaged, content_encoding="gzip")[0] == 400


def test_keys_in_headers_and_limits_are_checked_before_the_body_is_read(model, tmp_path):
    (tmp_path / "keys").write_text("secret\n")
    unread = HEAD + b"Authorization: Bearer %s\r\nContent-Length: 100000\r\n\r\n"
    with serving(tmp_path, "--model", model, "--keys", tmp_path / "keys", "--requests-per-minute=1") as server:
        with raw(server) as connection:
            connection.sendall(unread % b"wrong")
            assert b" 403 " in connection.recv(65536)
        assert server.ask("POST", "/v1/translate", {"text": LINE, "api_key": "secret"})[0] == 200
        with raw(server) as connection:
            connection.sendall(unread % b"secret")
            assert b" 429 " in connection.recv(65536)


# Hosts, origins and proxies


@pytest.mark.parametrize(
    ("flags", "headers", "status"),
    [
        ({}, {}, 0),
        ({}, {"host": "localhost:5000"}, 0),
        ({}, {"host": "LOCALHOST."}, 0),
        ({}, {"host": "[::1]:5000"}, 0),
        ({}, {"host": "192.168.1.5"}, 0),
        ({}, {"host": "evil.example"}, 421),
        ({}, {"host": "127.0.0.1.evil.example:5000"}, 421),
        ({}, {"host": "localhost:5000@evil.example"}, 421),
        ({"hosts": ("good.example",)}, {"host": "good.example"}, 0),
        ({"hosts": ("good.example",), "host": "0.0.0.0"}, {"host": "evil.example"}, 421),
        ({"host": "0.0.0.0"}, {"host": "any.example"}, 0),
        ({}, {"host": "localhost:5000", "origin": "http://localhost:5000"}, 0),
        ({}, {"host": "localhost:5000", "origin": "http://localhost:3000"}, 403),
        ({}, {"host": "localhost:5000", "origin": "https://evil.example"}, 403),
        ({}, {"host": "localhost:5000", "origin": "null"}, 403),
        ({"host": "0.0.0.0"}, {"host": "own.example", "origin": "https://evil.example"}, 403),
        ({"cors": ("https://good.example",)}, {"host": "localhost", "origin": "https://good.example"}, 0),
        ({"cors": ("https://good.example",)}, {"host": "localhost", "origin": "https://evil.example"}, 403),
        ({"cors": ("*",)}, {"host": "localhost", "origin": "https://evil.example"}, 0),
        ({"hosts": ("good.example",)}, {"host": "127.0.0.1:5000", "origin": "https://good.example"}, 0),
        ({}, {"host": "127.0.0.1:5000", "origin": "https://own.example", "sec-fetch-site": "same-origin"}, 0),
        ({}, {"host": "localhost", "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ({}, {"host": "localhost", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 0),
    ],
)
def test_only_own_hosts_and_known_origins_are_accepted(flags, headers, status):
    access = Access(ServeOptions(model=("m",), **flags))
    if not status:
        access.check(headers)
        return
    with pytest.raises(ProblemError) as problem:
        access.check(headers)
    assert problem.value.status == status


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"hosts": ("https://good.example",)}, "only the name"),
        ({"hosts": ("good.example:8443",)}, "only the name"),
        ({"hosts": ("a.example,b.example",)}, "only the name"),
        ({"cors": ("good.example",)}, "https://app.example"),
        ({"cors": ("https://good.example/page",)}, "https://app.example"),
        ({"hosts": ("good.example", "::1", "[::1]", "10.0.0.1"), "cors": ("*", "chrome-extension://abc")}, ""),
    ],
)
def test_hosts_and_origins_that_no_request_could_have_are_refused(flags, word):
    options = ServeOptions(model=("m",), **flags)
    if not word:
        Access(options)
        return
    with pytest.raises(UserError, match=word):
        Access(options)


def test_foreign_hosts_and_origins_are_refused_on_every_path(server):
    body = {"text": LINE}
    status, content, _ = server.ask("POST", "/v1/translate", body, host="evil.example")
    assert status == 421 and "--hosts" in content["error"]["message"]
    status, content, _ = server.ask("POST", "/v2/translate", body, origin="https://evil.example")
    assert status == 403 and "--cors" in content["message"]
    assert server.ask("GET", "/", host="evil.example")[0] == 421
    own = f"http://127.0.0.1:{server.port}"
    assert server.ask("POST", "/v1/translate", body, origin=own)[0] == 200
    with raw(server) as connection:
        connection.sendall(
            b"GET /translate HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert b" 403 " in answer_of(connection).split(b"\r\n")[0]
    with web_socket(server.port, headers="Origin: http://localhost\r\n") as connection:
        send_text(connection, LINE.encode())
        assert receive_frame(connection)[0] == 1


def test_only_named_proxies_may_tell_a_clients_address(model, tmp_path, nmt):
    body = {"text": LINE}
    with serving(tmp_path, "--model", model, "--requests-per-minute=1") as server:
        assert server.ask("POST", "/v1/translate", body)[0] == 200
        for number in range(3):
            assert server.ask("POST", "/v1/translate", body, x_forwarded_for=f"10.0.0.{number}")[0] == 429
    with serving(tmp_path, "--model", model, "--requests-per-minute=1", "--proxies", "127.0.0.0/8") as server:
        for number in range(3):
            forged = f"9.9.9.9, 10.0.0.{number}"  # the proxy appends the address that it sees
            assert server.ask("POST", "/v1/translate", body, x_forwarded_for=forged)[0] == 200
        assert server.ask("POST", "/v1/translate", body, x_forwarded_for="8.8.8.8, 10.0.0.0")[0] == 429
        assert "10.0.0.1 " in server.log.read_text()
    assert_refused(nmt("serve", "--model", model, "--cors", "a.example"), 2, "--cors a.example: not an origin")
    assert_refused(nmt("serve", "--model", model, "--proxies", "nginx"), 2, "--proxies nginx: neither an address")


# Errors outside of all routes


def test_paths_without_a_route_get_the_error_format_of_the_protocol_that_they_belong_to(server):
    assert set(server.ask("POST", "/v2/glossaries/none", {})[1]) == {"message"}
    assert isinstance(server.ask("GET", "/suggest")[1]["error"], str)
    assert server.ask("POST", "/v1/embeddings", {})[1]["error"]["type"] == "invalid_request_error"
    assert server.ask("GET", "/nothing")[1] == {"error": {"status": 404, "message": "Not Found"}}
    status, content, headers = server.ask("GET", "/v1/translate")
    assert status == 405 and content["error"]["status"] == 405 and headers["allow"] == "POST"
    status, content, headers = server.ask("DELETE", "/translate")
    assert status == 405 and isinstance(content["error"], str)
    assert {"GET", "POST"} <= set(headers["allow"].split(", "))
    status, _, headers = server.ask("POST", "/v3/glossaries/none")
    assert status == 405 and {"GET", "PATCH", "DELETE"} <= set(headers["allow"].split(", "))


# The start


def test_ready_says_whether_the_models_of_preload_are_loaded(model, tmp_path):
    with serving(tmp_path, "--model", model, "--preload", *late_search(tmp_path, loading=3)) as server:
        assert server.ask("GET", "/health")[1] == {"status": "ok"}
        status, content, headers = server.ask("GET", "/ready")
        assert status == 503 and "being loaded" in content["error"]["message"] and headers["retry-after"]
        wait_until(lambda: server.ask("GET", "/ready")[0] == 200)
        assert server.ask("GET", "/v1/directions")[1]["directions"][0]["loaded"]


@pytest.mark.parametrize("numbers", [[signal.SIGHUP] * 60, [signal.SIGHUP, signal.SIGHUP, signal.SIGTERM]])
def test_hangups_during_the_start_do_not_end_the_server(numbers, model, tmp_path):
    log = tmp_path / "log"
    code = "import nmt.extensions.serve.cli.serve as s, nmt.cli.main as m; print('begun', flush=True); m.main()"
    command = [sys.executable, "-c", code, "serve", "--model", model, "--port=0", "--preload", "--engine=torch"]
    with log.open("wb") as file:
        process = subprocess.Popen(list(map(str, command)), stdout=file, stderr=file, env=ENVIRONMENT)
    try:
        wait_until(lambda: b"Traceback" in log.read_bytes() or b"begun" in log.read_bytes())
        status = Path(f"/proc/{process.pid}/status")
        wait_until(lambda: int(re.search(r"SigIgn:\s+(\w+)", status.read_text())[1], 16) & 1)
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.03)
        if signal.SIGTERM in numbers:
            assert process.wait(30) == 128 + signal.SIGTERM
        else:
            wait_until(lambda: b"m: loaded in" in log.read_bytes())
            assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    assert b"Traceback" not in log.read_bytes()


def test_many_hangups_cause_few_reloads(model, tmp_path):
    with serving(tmp_path, "--model", model, "--preload", *late_search(tmp_path, loading=0.3)) as server:
        wait_until(lambda: server.ask("GET", "/ready")[0] == 200)
        for _ in range(20):
            server.process.send_signal(signal.SIGHUP)
            time.sleep(0.01)
        wait_until(lambda: server.log.read_text().count("m: loaded in") >= 3)
        time.sleep(4)
        assert server.log.read_text().count("m: loaded in") < 8
