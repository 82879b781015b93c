"""Streams of `nmt serve`: each line is sent as soon as it is translated, whatever the client, the model or other clients do."""

import asyncio
import json
import threading
from types import SimpleNamespace

import pytest
from conftest import small_model
from exchange import Exchange, events_of
from fake_translator import FakeTranslator, until

from nmt import registry
from nmt.artefact import Artefact
from nmt.errors import ResourceError, UserError
from nmt.extensions.serve import models
from nmt.extensions.serve.app import application
from nmt.extensions.serve.options import ServeOptions
from nmt.extensions.serve.service import STREAM_BATCH_LINES, Service
from nmt.text.pipeline import Pipeline
from nmt.translate.results import TRUNCATED, Candidate, Translation

COUNT = 2 * STREAM_BATCH_LINES + 8
LINES = [f"line {i}" for i in range(COUNT)]
SMALL = {"d_model": 16, "d_ff": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
OWN, OPENAI = "/v1/translate", "/v1/chat/completions"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("streams") / "m", **SMALL)


@pytest.fixture
def server(folder, monkeypatch):
    """A service with FakeTranslators as models: `opened` lists them, `next` opens the next one."""
    made = SimpleNamespace(opened=[], next=lambda: FakeTranslator(batch_tokens=4096))
    pipeline = Pipeline.load(Artefact(folder, "model"))

    def open_fake(*_, **__):
        made.opened.append(made.next())
        made.opened[-1].pipeline = made.opened[-1].pipeline or pipeline
        return made.opened[-1]

    monkeypatch.setattr(models, "open_translator", open_fake)
    options = ServeOptions(model=(str(folder),))
    made.service = Service(options, models.Models(options, registry.choose("decoder", "beam", {})))
    made.application = application(made.service)
    return made


def run(server, work):
    """Run a coroutine, and end the threads of the models."""

    async def whole():
        try:
            await asyncio.wait_for(work(), 60)
        finally:
            for fake in server.opened:
                fake.gate.set()
                for event in fake.held.values():
                    event.set()
            await server.service.models.close()

    asyncio.run(whole())


def hold(server, *texts, **settings):
    """Make the batches of some texts wait in the model that is opened next."""
    fake = FakeTranslator(batch_tokens=4096, **settings)
    fake.held = {text: threading.Event() for text in texts}
    server.next = lambda: fake
    return fake


def ask(server, stream=True, path=OWN, **fields):
    return Exchange(server.application, path, {**fields, "stream": stream})


def conversation(text):
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


async def events(exchange, count):
    """The next events."""
    return [events_of(await exchange.part())[0] for _ in range(count)]


def test_lines_are_sent_before_the_whole_is_translated_and_equal_those_of_the_whole(server):
    fake = hold(server, LINES[STREAM_BATCH_LINES], LINES[2 * STREAM_BATCH_LINES])

    async def work():
        stream = ask(server, text=LINES)
        status, headers = await stream.head()
        assert (
            status == 200 and headers["content-type"] == "text/event-stream; charset=utf-8" and headers["x-request-id"]
        )
        found = await events(stream, STREAM_BATCH_LINES)
        assert not any(event.is_set() for event in fake.held.values())
        for event in fake.held.values():
            event.set()
        found += events_of(await stream.body())
        await stream.task
        names, contents = zip(*found, strict=True)
        assert names == ("translation",) * COUNT + ("end",)
        assert contents[-1] == {"model": "m", "source": "en", "target": "en", "lines": COUNT}
        whole = ask(server, stream=False, text=LINES)
        assert (await whole.head())[0] == 200
        rows = {content.pop("index"): content for content in contents[:-1]}
        assert [rows[i] for i in range(COUNT)] == json.loads(await whole.body())["translations"]
        assert [row["translation"] for row in map(rows.get, range(COUNT))] == [line.upper() for line in LINES]

    run(server, work)
    assert server.service.characters == 2 * sum(map(len, LINES))
    assert 'status="200"} 2.0' in server.service.metrics.text().decode()


@pytest.mark.parametrize("path", [OWN, OPENAI])
def test_lines_that_are_ready_early_are_numbered_or_wait_for_their_turn(server, path):
    fake = hold(server, LINES[0], replicas=2)
    late = LINES[:STREAM_BATCH_LINES]

    async def work():
        stream = ask(server, path=path, **({"text": LINES} if path == OWN else conversation("\n".join(LINES))))
        if path == OWN:
            assert (await stream.head())[0] == 200
            found = await events(stream, COUNT - len(late))
            assert sorted(content["index"] for _, content in found) == list(range(len(late), COUNT))
            fake.held[LINES[0]].set()
            rest = events_of(await stream.body())
            assert sorted(content["index"] for name, content in rest if name == "translation") == list(range(len(late)))
            return
        await until(lambda: sum(map(len, fake.batches)) == COUNT)
        fake.held[LINES[0]].set()
        assert (await stream.head())[0] == 200
        *chunks, (_, end) = events_of(await stream.body())
        deltas = [content["choices"][0]["delta"] for _, content in chunks]
        assert [delta.get("content") for delta in deltas] == [
            *(f"{line.upper()}\n" for line in LINES[:-1]), LINES[-1].upper(), None
        ]  # fmt: skip
        assert [delta.get("role") for delta in deltas] == ["assistant"] + [None] * COUNT
        assert [content["choices"][0]["finish_reason"] for _, content in chunks] == [None] * COUNT + ["stop"]
        assert end == "[DONE]"

    run(server, work)


def test_an_openai_stream_gives_the_complete_answer_with_its_blank_lines(server):
    async def work():
        for text in ("\n\n".join(LINES[:3]) + "\n", "a", "", "\n"):
            stream, whole = (ask(server, stream, OPENAI, **conversation(text)) for stream in (True, False))
            assert (await stream.head())[0] == (await whole.head())[0] == 200
            chunks = [content for _, content in events_of(await stream.body()) if content != "[DONE]"]
            streamed = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
            assert streamed == json.loads(await whole.body())["choices"][0]["message"]["content"]
            assert streamed.count("\n") == text.count("\n")

    run(server, work)


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("path", [OWN, OPENAI])
def test_lines_not_yet_started_are_dropped_when_the_client_disconnects(server, path, reads):
    fake = hold(server, LINES[STREAM_BATCH_LINES])

    async def work():
        stream = ask(server, path=path, **({"text": LINES} if path == OWN else conversation("\n".join(LINES))))
        if reads:
            await stream.head()
            await events(stream, STREAM_BATCH_LINES)
        else:
            stream.writable.clear()
        await until(lambda: len(fake.batches) == 2)
        [model] = server.service.models.by_name.values()
        assert model.waiting_lines == COUNT - 2 * STREAM_BATCH_LINES
        stream.leave()
        await stream.task
        assert model.waiting_lines == 0
        fake.held[LINES[STREAM_BATCH_LINES]].set()
        other = ask(server, stream=False, text="other")
        assert (await other.head())[0] == 200

    run(server, work)
    assert fake.batches[2:] == [["other"]]
    assert 'status="499"} 1.0' in server.service.metrics.text().decode()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("broken"), 500),
        (UserError("no attention"), 400),
        (ResourceError("a search process died"), 503),
    ],
)
@pytest.mark.parametrize("path", [OWN, OPENAI])
def test_an_error_event_has_the_form_of_an_error_answer(server, path, error, status):
    fake = hold(server, LINES[STREAM_BATCH_LINES])
    asked = {"text": LINES} if path == OWN else conversation("\n".join(LINES))

    async def work():
        stream = ask(server, path=path, **asked)
        assert (await stream.head())[0] == 200
        assert len(await events(stream, STREAM_BATCH_LINES)) == STREAM_BATCH_LINES
        fake.error = error
        fake.held[LINES[STREAM_BATCH_LINES]].set()
        [(name, told)] = events_of(await stream.body())
        early, whole = ask(server, path=path, **asked), ask(server, False, path, **asked)
        for exchange in (early, whole):  # before the first line the HTTP status can report it
            found, headers = await exchange.head()
            assert (found, headers["content-type"]) == (status, "application/json")
            assert json.loads(await exchange.body()) == told
        assert name == "error" and told["error"]["message"]

    run(server, work)
    assert f'status="{status}"}} 3.0' in server.service.metrics.text().decode()


def test_a_rejected_request_for_a_stream_has_its_http_status(server):
    async def work():
        for fields, expected in (({"text": "a", "model": "none"}, 400), ({"text": ["a"] * 1001}, 413)):
            stream = ask(server, **fields)
            assert (await stream.head())[0] == expected
            assert json.loads(await stream.body())["error"]["status"] == expected

    run(server, work)


def test_a_client_that_reads_nothing_delays_neither_the_model_nor_others(server):
    async def work():
        slow = ask(server, text=LINES)
        slow.writable.clear()
        await until(lambda: server.opened and sum(map(len, server.opened[0].batches)) == COUNT)
        other = ask(server, text=["other"])
        assert (await other.head())[0] == 200
        assert [content.get("translation") for _, content in events_of(await other.body())] == ["OTHER", None]
        slow.writable.set()
        await slow.head()
        assert len(events_of(await slow.body())) == COUNT + 1

    run(server, work)


def test_a_reloaded_model_translates_the_remaining_lines(server):
    old = hold(server, LINES[STREAM_BATCH_LINES])

    async def work():
        stream = ask(server, text=LINES)
        await stream.head()
        found = await events(stream, STREAM_BATCH_LINES)
        await until(lambda: len(old.batches) == 2)
        new = hold(server)
        reload = asyncio.ensure_future(server.service.models.reload())
        found += events_of(await stream.body())
        assert not old.held[LINES[STREAM_BATCH_LINES]].is_set()
        old.held[LINES[STREAM_BATCH_LINES]].set()
        await reload
        assert [text for batch in new.batches for text in batch] == LINES[STREAM_BATCH_LINES:]
        assert sorted(content["index"] for name, content in found if name == "translation") == list(range(COUNT))

    run(server, work)


@pytest.mark.parametrize(
    "error", [UserError("no such model"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_a_model_is_reloaded_for_all_its_queues_or_for_none(error, server, capfd):
    model, kinds = server.service.models.find(), [models.Details(), models.Details(scores=True)]

    async def translators():
        return [(await model.load(details)).translator for details in kinds]

    def fail():
        raise error

    async def work():
        old = await translators()
        new = FakeTranslator()
        opened = iter([lambda: new, fail])
        server.next = lambda: next(opened)()
        shared = model._shared
        await server.service.models.reload()
        assert next(opened, None) is None and await translators() == old
        assert model._shared is shared  # a queue opened later takes its weights from this one
        assert f"the old model stays in use: {error}" in capfd.readouterr().err
        server.next = FakeTranslator
        await server.service.models.reload()
        assert not {*map(id, old)} & {*map(id, await translators())}

    run(server, work)


def test_unsupported_requests_are_rejected_and_out_of_memory_ones_can_be_retried(server):
    errors = iter([UserError("is a folder for CTranslate2"), RuntimeError("CUDA out of memory")])

    def fail():
        raise next(errors)

    async def work():
        assert (await ask(server, False, text="line").head())[0] == 200
        server.next = fail
        exchange = ask(server, False, text="line", alignment=True)
        assert (await exchange.head())[0] == 400 and "does not support alignment" in (await exchange.body()).decode()
        assert (await ask(server, False, text="line", n_best=2).head())[0] == 503
        assert (await ask(server, False, text="line").head())[0] == 200

    run(server, work)


def test_a_protocol_without_warnings_rejects_a_line_that_would_be_truncated(server):
    fake, cut = (
        hold(server),
        Translation([Candidate("half", [], 0.0, 0.0)], warnings={TRUNCATED: "truncated to 9 tokens"}),
    )
    fake.translate = lambda requests: [cut for _ in requests]

    model = server.service.models.find()
    question = {"q": "line", "source": model.source_lang, "target": model.target_lang}

    async def work():
        assert (await ask(server, False, text="line").head())[0] == 200  # the nmt protocol has warnings
        exchange = Exchange(server.application, "/translate", question)
        assert (await exchange.head())[0] == 413 and "truncated to 9 tokens" in (await exchange.body()).decode()

    run(server, work)


def test_a_request_cancelled_at_shutdown_is_told_so(server, capfd):
    hold(server, "line")

    async def work():
        exchange = ask(server, False, text="line")
        await until(lambda: server.opened and server.opened[0].batches)
        exchange.task.cancel()
        assert (await exchange.head())[0] == 503
        assert json.loads(await exchange.body())["error"] == {"status": 503, "message": "the server is shutting down"}
        await exchange.task

    run(server, work)
    assert "Traceback" not in capfd.readouterr().err


def test_an_error_closes_a_web_socket_and_is_logged_without_a_traceback(server, capfd):
    hold(server).error = RuntimeError("broken")
    sent = []

    async def work():
        received = iter([{"type": "websocket.connect"}, {"type": "websocket.receive", "text": "line"}])

        async def receive():
            return next(received)

        async def send(message):
            sent.append(message)

        scope = {"type": "websocket", "path": "/translate", "query_string": b"", "headers": [], "client": ("::1", 1)}
        await server.application(scope, receive, send)

    run(server, work)
    assert (sent[-1]["type"], sent[-1]["code"]) == ("websocket.close", 1011) and "the server's log" in sent[-1][
        "reason"
    ]
    assert "nmt: error: WebSocket: RuntimeError: broken\n" in capfd.readouterr().err


def test_a_model_reloaded_with_another_pipeline_uses_its_contexts(server):
    model, seen = server.service.models.find(), []

    async def work():
        await model.load(models.Details())
        new = hold(server)
        new.pipeline, translate = model.pipeline.with_context(1), new.translate
        new.translate = lambda requests: seen.extend(request.context for request in requests) or translate(requests)
        await server.service.models.reload()
        assert (await ask(server, False, text=["a", "b"]).head())[0] == 200

    run(server, work)
    assert seen == [(), ("a",)]


def test_a_connection_is_closed_if_its_client_reads_nothing():
    uvicorn = pytest.importorskip("uvicorn")
    from uvicorn.server import ServerState

    from nmt.extensions.serve.connections import Connection, Door

    unread = [70_000]
    ends: list[str] = []
    connection = None
    transport = SimpleNamespace(
        get_extra_info=lambda *_: None,
        get_protocol=lambda: connection,
        get_write_buffer_size=lambda: unread[0],
        is_closing=lambda: bool(ends),
        close=lambda: ends.append("close"),
        abort=lambda: ends.append("abort"),
    )

    async def work():
        nonlocal connection
        connection = Connection(Door(10), uvicorn.Config(lambda: None, log_config=None), ServerState(), {})
        connection.connection_made(transport)
        connection.pause_writing()
        connection._look()
        unread[0] = 69_000  # the client reads slowly
        connection._look()
        connection.resume_writing()
        connection.pause_writing()
        connection._look()  # as many bytes as before, but different ones
        assert ends == []
        connection._look()
        assert ends == ["abort"]

    asyncio.run(work())
