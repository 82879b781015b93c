"""`nmt serve` as clients see it: protocols, limits, faults, signals."""

import asyncio
import ctypes
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from functools import partial
from urllib.parse import quote, urlencode

import pytest
from conftest import ENVIRONMENT, WORDS, reseal, small_model
from exchange import events_of
from forks import forked_nmt
from prometheus_client.parser import text_string_to_metric_families as text_to_metrics
from refusals import assert_refused
from servers import late_search, raw, receive_frame, send_text, serving, wait_until, web_socket
from starlette.datastructures import Headers

import nmt
from nmt import registry
from nmt.extensions.ctranslate2 import engine as ctranslate2_engine
from nmt.extensions.serve import access, calls
from nmt.extensions.serve.metrics import Metrics
from nmt.extensions.serve.models import Details, Models, ServedModel, resident_bytes, trim_memory
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.problems import ProblemError
from nmt.translate import open_built_in
from nmt.translate.requests import Request

LINES = [" ".join(WORDS[i % len(WORDS)] for i in range(start, start + 2 + start % 4)) for start in range(12)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module")
def model(folder):
    return small_model(folder / "m", d_model=16, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1)


@pytest.fixture(scope="module")
def server(folder, model):
    with serving(folder, "--model", model, "--max-body=0.05", "--max-characters=2000", "--max-texts=50") as made:
        yield made


@pytest.fixture(scope="module")
def expected(model, folder):
    """The translation of each of LINES by `nmt translate`."""
    done = subprocess.run(
        [forked_nmt(), "translate", "--model", model, "--engine=torch"],
        input="".join(f"{line}\n" for line in LINES).encode(),
        capture_output=True,
        env=ENVIRONMENT,
        check=True,
    )
    return dict(zip(LINES, done.stdout.decode().splitlines(), strict=True))


def test_translations_equal_those_of_nmt_translate(server, expected):
    rows = server.translate(text=LINES)["translations"]
    assert [row["translation"] for row in rows] == list(expected.values())
    assert server.translate(text=LINES[0])["translations"] == rows[:1]


def test_the_nmt_protocol_returns_all_details_of_a_search(server, expected):
    [row] = server.translate(text=LINES[3], n_best=3, alignment=True, word_scores=True)["translations"]
    assert len(row["candidates"]) == 3 and row["candidates"][0]["text"] == row["translation"] == expected[LINES[3]]
    best = row["candidates"][0]
    assert list(row) == ["translation", "candidates"]
    assert list(best) == ["text", "score", "log_prob", "word_scores", "alignment"]
    assert sum(best["word_scores"]) == pytest.approx(best["log_prob"], abs=1e-4)
    assert all(len(weights) == len(LINES[3].split()) for weights in best["alignment"])
    assert len(best["alignment"]) == len(best["text"].split())
    word = WORDS[-1]
    [row] = server.translate(text={"text": LINES[3], "prefix": word})["translations"]
    assert row["translation"].split()[0] == word
    [row] = server.translate(text={"text": LINES[3], "phrases": [word]})["translations"]
    assert word in row["translation"].split()
    [row] = server.translate(text={"text": LINES[3], "avoid": [best["text"].split()[0]]})["translations"]
    assert best["text"].split()[0] not in row["translation"].split()
    [unknown, blank] = server.translate(text=["zzz", " "])["translations"]
    assert "1 of 1 tokens are not in the model's vocabulary" in unknown["warnings"][0] and blank == {"translation": ""}


def test_any_text_is_translated_in_each_protocol(server, expected):
    first, second = LINES[:2]
    one, two = f"{first.capitalize()}.", f"{second.capitalize()}!"
    texts = [row["translation"] for row in server.translate(text=[one, two])["translations"]]
    paragraph, translated = f"{one}  {two}\n\n{one}", f"{texts[0]}  {texts[1]}\n\n{texts[0]}"
    assert server.translate(text=paragraph, split=True)["translations"][0]["translation"] == translated
    fields = {"source": "en", "target": "en"}
    assert server.ask("POST", "/translate", fields | {"q": paragraph})[1]["translatedText"] == translated
    page, wanted = (
        f"<p>{first}</p>\n<ul><li>{second}<br></ul>",
        f"<p>{expected[first]}</p>\n<ul><li>{expected[second]}<br></ul>",
    )
    assert server.ask("POST", "/translate", fields | {"q": page, "format": "html"})[1] == {"translatedText": wanted}
    _, content, _ = server.ask("POST", "/v2/translate", {"text": [page], "target_lang": "EN", "tag_handling": "html"})
    assert content["translations"][0]["text"] == wanted
    _, content, _ = server.ask(
        "POST", "/v2/translate", {"text": [f"{one} {two}"], "target_lang": "EN", "split_sentences": "0"}
    )
    whole = server.translate(text=f"{one} {two}")["translations"][0]["translation"]
    assert content["translations"][0]["text"] == whole
    [row] = server.translate(text=f"<b>{first}</b> <x/>", markup="xml", repair=True)["translations"]
    assert row["translation"].startswith("<b>") and row["translation"].endswith("</b> <x/>")
    [row] = server.translate(text=first, glossary={first.split()[0]: WORDS[-1]})["translations"]
    assert WORDS[-1] in row["translation"].split()
    status, content, _ = server.ask("POST", "/v1/translate", {"text": paragraph, "split": True, "alignment": True})
    assert status == 400 and "cannot be combined with split" in content["error"]["message"]
    _, content, _ = server.ask("POST", "/v1/translate", {"text": [one, paragraph], "split": True, "stream": True})
    rows = {row["index"]: row["translation"] for name, row in events_of(content) if name == "translation"}
    assert rows == {0: texts[0], 1: translated}


def test_streamed_translations_equal_those_of_complete_answers(server, expected):
    status, content, headers = server.ask("POST", "/v1/translate", {"text": LINES, "n_best": 2, "stream": True})
    assert status == 200 and headers["content-type"].startswith("text/event-stream") and headers["x-request-id"]
    *rows, (name, end) = events_of(content)
    assert (name, end) == ("end", {"model": "m", "source": "en", "target": "en", "lines": len(LINES)})
    texts = {row["index"]: row["translation"] for _, row in rows}
    assert [texts[i] for i in range(len(LINES))] == list(expected.values())
    assert all(len(row["candidates"]) == 2 for _, row in rows)
    message = {"role": "user", "content": "\n\n".join(LINES[:3])}
    _, content, _ = server.ask("POST", "/v1/chat/completions", {"model": "m", "messages": [message], "stream": True})
    *chunks, (_, end) = events_of(content)
    assert end == "[DONE]" and chunks[-1][1]["choices"][0]["finish_reason"] == "stop"
    lines = [chunk["choices"][0]["delta"].get("content") for _, chunk in chunks]
    first, second, third = (expected[line] for line in LINES[:3])
    assert lines == [f"{first}\n", "\n", f"{second}\n", "\n", third, None]


def test_libretranslate_requests_can_use_the_url_a_form_or_json(server, expected):
    line = LINES[4]
    fields = {"q": line, "source": "en", "target": "en"}
    form = urlencode(fields).encode()
    boundary = "".join(
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()
    )
    answers = [
        server.ask("GET", f"/translate?{urlencode(fields)}"),
        server.ask("POST", "/translate", form, content_type="application/x-www-form-urlencoded"),
        server.ask(
            "POST", "/translate", f"{boundary}--x--\r\n".encode(), content_type="multipart/form-data; boundary=x"
        ),
        server.ask("POST", "/translate", fields),
    ]
    for status, content, _ in answers:
        assert (status, content) == (200, {"translatedText": expected[line]})
    _, several, _ = server.ask("POST", "/translate", fields | {"q": LINES[:3], "source": "auto", "alternatives": 2})
    assert several["translatedText"] == [expected[text] for text in LINES[:3]]
    assert several["detectedLanguage"][0]["language"] == "en" and all(several["alternatives"])
    _, content, _ = server.ask("POST", "/translate", fields | {"q": f"{line}\n\n  \n{LINES[1]}\n"})
    assert content["translatedText"] == f"{expected[line]}\n\n  \n{expected[LINES[1]]}\n"
    assert server.ask("GET", "/languages")[1] == [{"code": "en", "name": "English", "targets": ["en"]}]
    assert server.ask("POST", "/detect", {"q": "the man is in the house"})[1][0]["language"] == "en"


def test_deepl_and_openai_requests_get_answers_in_their_format(server, expected):
    _, content, _ = server.ask("POST", "/v2/translate", {"text": LINES[:2], "target_lang": "EN-US"})
    assert [row["text"] for row in content["translations"]] == [expected[line] for line in LINES[:2]]
    assert content["translations"][0]["detected_source_language"] == "EN"
    form = urlencode([("text", LINES[0]), ("text", LINES[1]), ("target_lang", "EN"), ("source_lang", "EN")]).encode()
    assert server.ask("POST", "/v2/translate", form)[1]["translations"][1]["text"] == expected[LINES[1]]
    assert server.ask("GET", "/v2/languages?type=target")[1][0]["language"] == "EN-GB"
    assert server.ask("GET", "/v2/usage")[1]["character_count"] > 0
    message = {"role": "user", "content": [{"type": "text", "text": LINES[0]}]}
    _, content, _ = server.ask("POST", "/v1/chat/completions", {"model": "en-en", "messages": [message]})
    assert content["choices"][0]["message"]["content"] == expected[LINES[0]]
    _, events, headers = server.ask(
        "POST", "/v1/chat/completions", {"model": "m", "messages": [message], "stream": True, "temperature": 0}
    )
    chunks = [json.loads(event[6:]) for event in events.decode().split("\n\n") if event.startswith("data: {")]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == expected[LINES[0]]
    assert headers["content-type"].startswith("text/event-stream") and events.endswith(b"data: [DONE]\n\n")
    assert server.ask("GET", "/v1/models", content_type="application/json")[1]["data"][0]["id"] == "m"


def test_texts_of_one_request_go_to_the_models_for_their_languages(folder, model, expected, tmp_path):
    german = small_model(tmp_path / "german", d_model=24, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1)
    side = json.loads((german / "pipeline/pipeline.json").read_bytes())
    side["source"]["language"] = "de"
    reseal(german, "pipeline/pipeline.json", json.dumps(side).encode())
    texts = [f"{LINES[0]} the man is in the house", f"{LINES[1]} der Mann ist in dem Haus und nicht da", "the dog"]
    names = ["m", "german", "m"]
    with serving(tmp_path, "--model", model, "--model", german) as server:
        alone = [
            server.translate(text=text, model=name)["translations"][0]["translation"]
            for text, name in zip(texts, names, strict=True)
        ]
        assert server.translate(text=texts[1], model="m")["translations"][0]["translation"] != alone[1]
        _, content, _ = server.ask("POST", "/v2/translate", {"text": texts, "target_lang": "EN"})
        assert [row["detected_source_language"] for row in content["translations"]] == ["EN", "DE", "EN"]
        assert [row["text"] for row in content["translations"]] == alone
        fields = {"q": texts, "source": "auto", "target": "en"}
        _, content, _ = server.ask("POST", "/translate", fields)
        assert content["translatedText"] == alone
        status, content, _ = server.ask("POST", "/translate", fields | {"target": "fr"})
        assert status == 400 and content["error"] == "fr is not supported"


def test_the_marian_web_socket_answers_lines_with_lines(server, expected):
    with web_socket(server.port) as connection:
        for _ in range(2):
            send_text(connection, f"{LINES[2]}\n\n{LINES[5]}\n".encode())
            assert receive_frame(connection) == (1, f"{expected[LINES[2]]}\n\n{expected[LINES[5]]}\n".encode())
    with web_socket(server.port, "/translate?model=nope") as connection:
        opcode, content = receive_frame(connection)
        assert opcode == 8 and b"unknown model" in content
    with web_socket(server.port, f"/translate?model={quote('字' * 90)}") as connection:
        assert receive_frame(connection) == (8, (1008).to_bytes(2) + f"unknown model '{'字' * 36}".encode())
    with web_socket(server.port) as connection:
        connection.sendall(bytes([0x82, 0x81, 0, 0, 0, 0]) + b"x")  # a binary message
        assert receive_frame(connection) == (8, (1008).to_bytes(2) + b"messages must be text")


def test_a_web_socket_with_a_silent_client_stays_open(monkeypatch):
    uvicorn = pytest.importorskip("uvicorn")
    from nmt.extensions.serve import connections

    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.1)

    async def echo(scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})

    config = uvicorn.Config(
        echo, http=partial(connections.Connection, connections.Door(10)), log_config=None, lifespan="off"
    )
    ended = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=ended.run, kwargs={"sockets": [listener]})
        thread.start()
        with web_socket(listener.getsockname()[1]) as connection:
            time.sleep(0.5)
            send_text(connection, b"line")
            assert receive_frame(connection) == (1, b"line")
        ended.should_exit = True
        thread.join()


# Bad input

LIBRE = {"q": "a", "source": "en", "target": "en"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "told"),
    [
        ("POST", "/v1/translate", b"{", 400, "not valid JSON"),
        ("POST", "/v1/translate", b'{"text": "\xff"}', 400, "not valid JSON"),
        ("POST", "/v1/translate", b"[" * 100_0, 400, "JSON"),
        ("POST", "/v1/translate", {"text": 5}, 400, "Expected"),
        ("POST", "/v1/translate", {"texts": "a"}, 400, "unknown field"),
        ("POST", "/v1/translate", {"text": "a", "n_best": 0}, 400, ">= 1 - at `$.n_best`"),
        ("POST", "/v1/translate", {"text": "a", "model": "x" * 5000}, 400, "unknown model"),
        ("POST", "/v1/translate", {"text": "a", "source": "xx"}, 400, "no model translates xx-*"),
        ("POST", "/v1/translate", {"text": ["a"] * 51}, 413, "51 texts"),
        ("POST", "/v1/translate", {"text": "a " * 2000}, 413, "4,000 characters"),
        ("GET", "/v1/translate", None, 405, "Not Allowed"),
        ("GET", "/nothing", None, 404, "Not Found"),
        ("POST", "/translate", {"source": "en", "target": "en"}, 400, "Invalid request: missing q parameter"),
        ("POST", "/translate", {"q": "a", "target": "en"}, 400, "missing source"),
        ("POST", "/translate", {"q": "a", "source": "en", "target": "xx"}, 400, "xx is not supported"),
        ("POST", "/translate", LIBRE | {"format": "sgml"}, 400, "sgml format is not supported"),
        ("POST", "/translate", LIBRE | {"format": []}, 400, "format is not supported"),
        ("POST", "/translate", LIBRE | {"q": [5]}, 400, "q must be"),
        ("POST", "/translate", LIBRE | {"alternatives": "x"}, 400, "alternatives parameter is not a number"),
        ("POST", "/translate", LIBRE | {"alternatives": 21}, 400, "alternatives parameter must be <= 20"),
        ("POST", "/translate", b"q=%ff&source=en&target=en", 400, "not a valid form"),
        ("POST", "/v2/translate", {"text": [5], "target_lang": "EN"}, 400, "'text' not supported"),
        ("POST", "/v2/translate", {"text": ["a"]}, 400, "'target_lang'"),
        ("POST", "/v2/translate", {"text": ["a"], "target_lang": "EN", "tag_handling": "v2"}, 400, "'tag_handling'"),
        (
            "POST",
            "/v1/chat/completions",
            {"model": "nope", "messages": [], "stream": None},
            400,
            "no message with the role 'user'",
        ),
        ("POST", "/v1/chat/completions", {"messages": []}, 400, "`model`"),
    ],
)
def test_bad_requests_get_the_error_of_their_protocol(server, method, path, body, status, told):
    found, content, headers = server.ask(method, path, body)
    assert found == status and told in json.dumps(content), content
    assert headers["x-request-id"]
    if path.startswith("/v2"):
        assert set(content) == {"message"}
    elif path == "/translate":
        assert set(content) == {"error"} and isinstance(content["error"], str)
    else:
        assert isinstance(content["error"]["message"], str)


def test_a_malformed_multipart_form_is_an_error(server):
    status, content, _ = server.ask(
        "POST", "/translate", b"--x\r\nnonsense", content_type="multipart/form-data; boundary=x"
    )
    assert status == 400 and content["error"]
    assert server.ask("POST", "/translate", b"x", content_type="multipart/form-data")[0] == 400


@pytest.mark.parametrize(("charset", "text"), [("utf-7", b"a +2AA- b"), ("unicode_escape", rb"\ud800")])
def test_a_form_charset_that_decodes_to_lone_surrogates_is_an_error(charset, text):
    """Such text would fail the batch of other clients too."""
    body = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n' + text + b"\r\n--x--\r\n"
    call = calls.Call(Headers({"content-type": f"multipart/form-data; boundary=x; charset={charset}"}), [], body)
    with pytest.raises(ProblemError) as problem:
        asyncio.run(call.fields())
    assert problem.value.status == 400


def test_a_part_of_a_form_can_be_as_long_as_the_body():
    text = "word " * 300_000
    body = f'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n{text}\r\n--x--\r\n'.encode()
    call = calls.Call(Headers({"content-type": "multipart/form-data; boundary=x"}), [], body)
    assert asyncio.run(call.fields()) == {"q": text}


def test_endless_bodies_and_malformed_chunks_are_cut_off(server, expected):
    assert server.ask("POST", "/v1/translate", b"x" * 60_000)[0] == 413
    chunked = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with raw(server) as connection, suppress(OSError):
        connection.sendall(chunked)
        for _ in range(1000):
            connection.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")
    wait_until(lambda: server.log.read_text().count("POST /v1/translate 413") >= 2)
    for garbage in (b"\x00\x01\x02\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", b"5\r\n"):
        with raw(server) as connection:
            connection.sendall(garbage)
    with raw(server) as connection:
        connection.sendall(chunked + b"ZZ\r\n")
        assert b"400" in connection.recv(4096)
    assert server.translate(text=LINES[0])["translations"][0]["translation"] == expected[LINES[0]]


def test_each_of_many_clients_gets_its_own_answers(server, expected):
    failures = []

    def client(number: int) -> None:
        for i in range(8):
            line = LINES[(number * 5 + i) % len(LINES)]
            found = server.translate(text=line)["translations"][0]["translation"]
            if found != expected[line]:
                failures.append((line, found))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_slow_connections_do_not_delay_others(server, expected):
    with ExitStack() as stack:
        for _ in range(100):
            connection = stack.enter_context(raw(server))
            connection.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        for line in LINES[:3]:
            assert server.translate(text=line)["translations"][0]["translation"] == expected[line]
    wait_until(lambda: server.log.read_text().count(" 499 ") >= 100)


def test_counters_request_numbers_and_the_log_contain_no_texts(server):
    _, _, headers = server.ask("POST", "/v1/translate", {"text": LINES[0]}, x_request_id="my-number")
    assert headers["x-request-id"] == "my-number"
    log = server.log.read_text()
    assert (
        re.search(r"\n\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\] 127\.0\.0\.1 my-number POST /v1/translate 200 \d+ ms", log)
        and LINES[0] not in log
    )
    _, metrics, _ = server.ask("GET", "/metrics")
    assert re.search(rb'nmt_requests_total\{protocol="nmt",status="200"\} [1-9]', metrics)
    assert b'nmt_model_loaded{model="m"} 1.0' in metrics and b'nmt_waiting_lines{model="m"} 0.0' in metrics


# Keys, models, signals


def test_api_keys_and_rate_limits_are_enforced(folder, model, tmp_path):
    (tmp_path / "keys").write_text("\ufeffsecret\n# of the team\n\nother\nschlüssel\n")
    with serving(tmp_path, "--model", model, "--keys", tmp_path / "keys", "--requests-per-minute=3") as server:
        body = {"text": LINES[0]}
        assert server.ask("POST", "/v1/translate", body)[0] == 403
        assert server.ask("POST", "/v1/translate", body, authorization="Bearer wrong")[0] == 403
        status, content, headers = server.ask("POST", "/v1/chat/completions", {}, authorization="Bearer wrong")
        assert (status, content["error"]["code"], headers["www-authenticate"]) == (401, "invalid_api_key", "Bearer")
        ways = [({}, {"authorization": "Bearer secret"}), ({}, {"x_api_key": "secret"}), ({"api_key": "secret"}, {})]
        for fields, headers in ways:
            assert server.ask("POST", "/v1/translate", body | fields, **headers)[0] == 200
        in_utf8 = "schlüssel".encode().decode("latin-1")  # one character per byte, as http.client sends it
        assert server.ask("POST", "/v1/translate", body, x_api_key=in_utf8)[0] == 200
        status, content, headers = server.ask("POST", "/v1/translate", body, x_api_key="secret")
        assert status == 429 and 1 <= int(headers["retry-after"]) <= 60 and "too many" in content["error"]["message"]
        assert (
            server.ask(
                "POST", "/v2/translate", {"text": "a", "target_lang": "EN"}, authorization="DeepL-Auth-Key other"
            )[0]
            == 200
        )
        for path, headers, opcode in (
            ("?api_key=third", "", 8),
            ("?api_key=other", "", 1),
            ("", "X-API-Key: other\r\n", 1),
        ):
            with web_socket(server.port, f"/translate{path}", headers) as connection:
                send_text(connection, b"ban")
                assert receive_frame(connection)[0] == opcode
        with web_socket(server.port) as connection:  # it would be kept open without a request
            assert receive_frame(connection) == (8, (1008).to_bytes(2) + b"the API key is missing or unknown")
        assert server.ask("GET", "/health")[1] == {"status": "ok"}
        assert "secret" not in server.log.read_text()


def test_a_hangup_signal_reads_the_keys_again(model, tmp_path):
    (tmp_path / "keys").write_text("first # of the team\n")
    with serving(tmp_path, "--model", model, "--keys", tmp_path / "keys") as server:

        def status(key: str) -> int:
            return server.ask("POST", "/v1/translate", {"text": LINES[0]}, x_api_key=key)[0]

        assert (status("first"), status("second")) == (200, 403)
        (tmp_path / "keys").write_text("second\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: status("second") == 200)
        assert status("first") == 403
        (tmp_path / "keys").write_text("# none\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "the old ones stay in use" in server.log.read_text())
        assert status("second") == 200


def test_the_memory_of_replaced_models_returns_to_the_system():
    def fragment() -> None:
        kept.extend(list(map(bytes, [1000] * 60_000))[::100])

    kept: list[bytes] = []
    worker = threading.Thread(target=fragment)
    worker.start()
    worker.join()
    before = resident_bytes()
    trim_memory()
    assert before - resident_bytes() > 20 << 20 or not hasattr(ctypes.CDLL(None), "malloc_trim")


def test_a_client_over_its_rate_limit_still_gets_the_allowed_requests(monkeypatch):
    now = 0.0
    monkeypatch.setattr(access.time, "monotonic", lambda: now)
    gate, allowed = access.Gate(ServeOptions(model=("m",), requests_per_minute=60)), 0
    for tenth in range(600):  # ten per second, of which one is allowed, after the initial 60
        now = tenth / 10
        try:
            gate.check("", "client")
            allowed += 1
        except ProblemError as error:
            assert error.status == 429 and error.headers["Retry-After"] == "1"
    assert 115 <= allowed <= 120
    slow = access.Gate(ServeOptions(model=("m",), requests_per_minute=1))
    slow.check("", "client")
    now += 18.6
    with pytest.raises(ProblemError) as refused:
        slow.check("", "client")
    now += int(refused.value.headers["Retry-After"])
    slow.check("", "client")


def test_a_silent_client_does_not_accumulate_more_than_the_initial_allowance(monkeypatch):
    now = 0.0
    monkeypatch.setattr(access.time, "monotonic", lambda: now)
    gate = access.Gate(ServeOptions(model=("m",), requests_per_minute=3))
    gate.check("", "client")
    now = 3600.0
    for _ in range(3):
        gate.check("", "client")
    with pytest.raises(ProblemError) as problem:
        gate.check("", "client")
    assert problem.value.status == 429


def test_a_model_path_from_a_sweep_can_contain_an_equals_sign(model, tmp_path, monkeypatch):
    shutil.copytree(model, tmp_path / "lr=0.1,seed=1")
    monkeypatch.chdir(tmp_path)
    for given, name in (("lr=0.1,seed=1", "lr=0.1,seed=1"), ("x=lr=0.1,seed=1", "x")):
        assert list(Models(ServeOptions(model=(given,)), registry.choose("decoder", "beam")).by_name) == [name]


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_the_queues_of_a_model_share_its_weights(engine, model, expected, monkeypatch):
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
    loads = {"load_model": 0, "CTranslate2Model": 0}

    def count(module, name):
        make = getattr(module, name)

        def counted(*arguments):
            loads[name] += 1
            return make(*arguments)

        monkeypatch.setattr(module, name, counted)

    count(open_built_in, "load_model")
    count(ctranslate2_engine, "CTranslate2Model")
    options = ServeOptions(model=(str(model),), engine=engine, device="cpu", threads=1)
    served = ServedModel("m", model, options, registry.choose("decoder", "beam"), Metrics())
    is_exported = int(engine == "ctranslate2")
    queues = [Details(), Details(scores=True), Details(alignment=True), Details(phrases=True), Details(repair=True)]

    async def answers(details, requests):
        scheduler = await served.load(details)
        by_number = dict([row async for row in scheduler.translate(requests)])
        return [by_number[number].text for number in range(len(requests))]

    async def check():
        await served.load(Details())  # this makes the export, and checks it with separate models
        await served.unload()
        loads.update(load_model=0, CTranslate2Model=0)
        for details in queues:
            texts = await answers(details, list(map(Request, LINES)))
            assert details.repair or texts == list(expected.values())
        [constrained] = await answers(Details(), [Request(LINES[3], prefix=WORDS[-1])])
        assert constrained.split()[0] == WORDS[-1]
        assert loads == {"load_model": 1, "CTranslate2Model": is_exported}
        await served.reload()
        assert await answers(queues[1], list(map(Request, LINES))) == list(expected.values())
        assert loads == {"load_model": 2, "CTranslate2Model": 2 * is_exported}
        await served.unload()

    asyncio.run(check())


def test_models_are_loaded_on_demand_unloaded_for_others_and_reloaded(folder, model, tmp_path):
    other = small_model(tmp_path / "other", d_model=16, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1)
    names = ["--model", model, "--model", f"second={other}"]
    with serving(tmp_path, *names, "--max-memory=0.01", "--cors", "http://page.example") as server:

        def loaded() -> list[bool]:
            return [row["loaded"] for row in server.ask("GET", "/v1/directions")[1]["directions"]]

        assert loaded() == [False, False]
        before = server.translate(text=LINES[0])["translations"]
        assert loaded() == [True, False]
        server.translate(text=LINES[0], model="second")
        assert loaded() == [False, True] and "unloaded to free memory for second" in server.log.read_text()
        shutil.rmtree(other)
        shutil.copytree(model, other)
        (other / "model.safetensors").write_bytes(b"damaged")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "the old model stays in use" in server.log.read_text())
        server.translate(text=LINES[0], model="second")
        shutil.copy(model / "model.safetensors", other)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.log.read_text().count("second: loaded") == 2)
        assert server.translate(text=LINES[0], model="second")["translations"] == before
        (model / "model.safetensors").rename(tmp_path / "away")
        status, content, headers = server.ask("POST", "/v1/translate", {"text": "a", "model": "m"})
        (tmp_path / "away").rename(model / "model.safetensors")
        assert status == 503 and "cannot be loaded" in content["error"]["message"] and headers["retry-after"]
        assert (
            server.ask("OPTIONS", "/v1/translate", origin="http://page.example", access_control_request_method="POST")[
                2
            ]["access-control-allow-origin"]
            == "http://page.example"
        )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_after_the_requests_in_progress(number, folder, model, tmp_path):
    with serving(tmp_path, "--model", model) as server:
        server.translate(text="a")
        answers: list[object] = []
        client = threading.Thread(target=lambda: answers.append(server.translate(text=LINES)))
        client.start()
        time.sleep(0.05)
        server.process.send_signal(number)
        client.join()
        assert server.process.wait(20) == 128 + number
        assert len(answers[0]["translations"]) == len(LINES) and "Traceback" not in server.log.read_text()


def test_a_signal_closes_a_web_socket_after_the_answer_to_its_message(model, tmp_path):
    closed = 8, (1012).to_bytes(2)
    with serving(tmp_path, "--model", model, *late_search(tmp_path, searching=2)) as server:
        with web_socket(server.port) as idle, web_socket(server.port) as busy:
            send_text(busy, f"{LINES[2]}\n".encode())
            wait_until((tmp_path / "searching").exists)
            server.process.send_signal(signal.SIGTERM)
            assert receive_frame(idle) == closed
            with pytest.raises(OSError):
                raw(server)  # it accepts no new connections meanwhile
            send_text(busy, b"too late")
            opcode, answer = receive_frame(busy)
            assert opcode == 1 and answer.endswith(b"\n")
            assert receive_frame(busy) == closed
        assert server.process.wait(20) == 128 + signal.SIGTERM
        assert "Traceback" not in server.log.read_text()


def test_a_second_signal_ends_the_server_at_once(model, tmp_path):
    answers: list[tuple] = []
    with serving(tmp_path, "--model", model, *late_search(tmp_path, searching=30)) as server:
        with web_socket(server.port) as busy:
            send_text(busy, f"{LINES[2]}\n".encode())
            wait_until((tmp_path / "searching").exists)
            client = threading.Thread(target=lambda: answers.append(server.ask("POST", "/v1/translate", {"text": "a"})))
            client.start()
            time.sleep(0.3)
            for _ in range(2):
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.3)
            assert server.process.wait(5) == 128 + signal.SIGTERM
            client.join()
        assert "Traceback" not in server.log.read_text() and [status for status, *_ in answers] == [503]


def test_a_signal_ends_a_server_that_is_still_loading_models(model, tmp_path):
    with serving(tmp_path, "--model", model, "--preload", *late_search(tmp_path, loading=60)) as server:
        wait_until((tmp_path / "loading").exists)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(15) == 128 + signal.SIGTERM


def test_a_model_that_cannot_be_preloaded_ends_the_server_with_its_error(model, nmt):
    refused = nmt("serve", "--model", model, "--port=0", "--preload", "--engine=ctranslate2", "--decoder=sampling")
    assert refused.returncode == 2 and b"Traceback" not in refused.stderr
    assert refused.stderr.splitlines()[-1].startswith(b"nmt: error: --engine ctranslate2: ")


def test_models_and_settings_that_cannot_be_served_are_reported_at_once(model, nmt, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = nmt("serve", "--model", model, "--port", taken.getsockname()[1])
    assert_refused(result, 5, "cannot listen on this address: Address already in use")
    assert nmt("serve", "--model", tmp_path / "none", "--port=0").returncode in (2, 4, 5)
    assert_refused(nmt("serve", "--model", model, "--model", model, "--port=0"), 2, "another model has the same name")
    (tmp_path / "keys").write_text("# none\n  # at all\n")
    assert nmt("serve", "--model", model, "--port=0", "--keys", tmp_path / "keys").returncode == 2
    assert nmt("serve", "--model", model, "--port=0", "--host=nowhere.invalid").returncode == 5


def metrics_of(server):
    """The values of all metrics, by name and labels."""
    text = server.ask("GET", "/metrics")[1].decode()
    return {(sample.name, *sample.labels.values()): sample.value for f in text_to_metrics(text) for sample in f.samples}


def test_metrics_count_tokens_batches_queues_and_failures(server, model):
    before = metrics_of(server)
    server.translate(text=LINES[:3])
    assert server.ask("POST", "/v1/translate", b"{")[0] == 400
    assert server.ask("GET", "/v1/nothing")[0] == 404
    after = metrics_of(server)
    found = nmt.load(model).translate(LINES[:3])
    counted = {
        ("nmt_lines_total", "m"): 3,
        ("nmt_characters_total", "m"): sum(map(len, LINES[:3])),
        ("nmt_source_tokens_total", "m"): sum(len(line.split()) for line in LINES[:3]),
        ("nmt_target_tokens_total", "m"): sum(len(translation.candidates[0].tokens) for translation in found),
        ("nmt_queue_seconds_count", "m"): 1,
        ("nmt_batch_lines_sum", "m"): 3,
        ("nmt_failures_total", "invalid", "nmt"): 1,
    }
    assert {name: after[name] - before.get(name, 0.0) for name in counted} == counted
    assert sum(value for name, value in after.items() if name[0] == "nmt_failures_total" and "not-found" in name) >= 1
    assert after["nmt_inference_seconds_sum", "m"] > before["nmt_inference_seconds_sum", "m"]
    assert after["process_resident_memory_bytes",] > 0 and after["nmt_running_requests",] >= 1
