"""The queue of a served model: everyone gets their own lines, in turn, and what nobody waits for is dropped."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
from fake_translator import FakeTranslator, until

from nmt.extensions.serve.metrics import Metrics, ModelMetrics
from nmt.extensions.serve.problems import ProblemError
from nmt.extensions.serve.scheduler import JOIN_SECONDS, ClosedError, Scheduler
from nmt.translate.requests import Request


def model_metrics() -> ModelMetrics:
    return Metrics().of_model("fake", lambda: 0, lambda: True)


def of(*texts):
    return [Request(text) for text in texts]


async def translated(scheduler, requests):
    """The translations in the order of the requests."""
    by_number = dict([numbered async for numbered in scheduler.translate(requests)])
    assert sorted(by_number) == list(range(len(requests)))
    return [by_number[number] for number in sorted(by_number)]


@pytest.fixture
def fake():
    return FakeTranslator()


@pytest.fixture
def scheduler(fake):
    made = Scheduler(fake, 1000, model_metrics())
    yield made
    fake.gate.set()
    made.close()


def test_each_client_gets_its_own_lines_in_their_order(scheduler):
    async def client(number):
        lines = [f"c{number} l{i}" for i in range(number % 5 + 1)]
        found = await translated(scheduler, of(*lines))
        assert [translation.text for translation in found] == [line.upper() for line in lines]

    async def all_clients():
        await asyncio.gather(*map(client, range(50)))
        assert await translated(scheduler, []) == []

    asyncio.run(all_clients())
    assert scheduler.waiting_lines == 0


def test_a_batch_takes_a_line_from_each_client_in_turn(scheduler, fake):
    async def work():
        fake.gate.clear()
        first = asyncio.ensure_future(translated(scheduler, of("first")))
        await until(lambda: fake.batches)
        longer = asyncio.ensure_future(translated(scheduler, of(*(f"longer {i}" for i in range(8)))))
        await asyncio.sleep(0)
        short = asyncio.ensure_future(translated(scheduler, of("short")))
        await asyncio.sleep(0)
        fake.gate.set()
        await asyncio.gather(first, longer, short)

    asyncio.run(work())
    assert fake.batches[1][:3] == ["longer 0", "short", "longer 1"]
    assert max(len(batch) for batch in fake.batches) < 10  # 20 tokens of 3 characters


def test_a_line_on_an_idle_server_is_translated_at_once_and_lines_that_come_meanwhile_share_a_batch(scheduler, fake):
    async def work():
        fake.gate.clear()
        clients = [asyncio.ensure_future(translated(scheduler, of("0")))]
        await until(lambda: fake.batches)
        clients += [asyncio.ensure_future(translated(scheduler, of(str(number)))) for number in range(1, 6)]
        await until(lambda: scheduler.waiting_lines == 5)
        fake.gate.set()
        await asyncio.gather(*clients)

    asyncio.run(work())
    assert fake.batches == [["0"], ["1", "2", "3", "4", "5"]]


def test_short_requests_wait_for_no_long_request(scheduler, fake):
    """While a long request occupies the only thread, the spare one translates short ones; then both take turns."""
    fake.held["long 00"] = threading.Event()

    async def work():
        long = asyncio.ensure_future(translated(scheduler, of(*(f"long {i:02}" for i in range(12)))))
        await until(lambda: fake.batches)
        for text in ("a", "b"):
            [found] = await asyncio.wait_for(translated(scheduler, of(text)), 20)
            assert found.text == text.upper()
        fake.held["long 00"].set()
        await long

    asyncio.run(work())
    assert fake.batches[1:3] == [["a"], ["b"]]
    assert not any({"a", "b"} & set(batch) for batch in fake.batches if len(batch) > 1)


def test_a_long_request_goes_on_while_short_ones_never_end(scheduler, fake):
    async def work():
        is_done = False

        async def client():
            while not is_done:
                await translated(scheduler, of("short"))

        clients = [asyncio.ensure_future(client()) for _ in range(5)]
        await until(lambda: len(fake.batches) > 5)
        long = await asyncio.wait_for(translated(scheduler, of(*(f"long {i}" for i in range(100)))), 20)
        is_done = True
        await asyncio.gather(*clients)
        assert len(long) == 100

    asyncio.run(work())


def test_lines_that_nobody_waits_for_are_dropped(scheduler, fake):
    async def work():
        fake.gate.clear()
        first = asyncio.ensure_future(translated(scheduler, of("first")))
        await until(lambda: fake.batches)
        gone = asyncio.ensure_future(translated(scheduler, of(*(f"gone {i}" for i in range(30)))))
        await until(lambda: scheduler.waiting_lines == 30)
        gone.cancel()
        last = asyncio.ensure_future(translated(scheduler, of("last")))
        await until(lambda: scheduler.waiting_lines == 1)
        fake.gate.set()
        await asyncio.gather(first, last)
        with pytest.raises(asyncio.CancelledError):
            await gone

    asyncio.run(work())
    assert fake.batches == [["first"], ["last"]]


def test_a_full_queue_refuses_and_says_when_to_ask_again(fake):
    scheduler = Scheduler(fake, 3, model_metrics())

    async def work():
        fake.gate.clear()
        first = asyncio.ensure_future(translated(scheduler, of("first")))
        await until(lambda: fake.batches and not scheduler.waiting_lines)
        second = asyncio.ensure_future(translated(scheduler, of("a", "b")))
        await until(lambda: scheduler.waiting_lines == 2)
        with pytest.raises(ProblemError) as told:
            await translated(scheduler, of("c", "d"))
        assert told.value.status == 503
        assert int(told.value.headers["Retry-After"]) >= 1
        fake.gate.set()
        await asyncio.gather(first, second)
        assert len(await translated(scheduler, of(*"abcdefgh"))) == 8  # an empty queue takes any

    asyncio.run(work())
    scheduler.close()


def test_lines_arrive_with_their_batch_and_closing_the_iterator_drops_the_rest(scheduler, fake):
    fake.held["line 2"] = threading.Event()

    async def work():
        lines = scheduler.translate(of(*(f"line {i}" for i in range(20))), 2)
        found = [await anext(lines), await anext(lines)]
        assert [(number, translation.text) for number, translation in found] == [(0, "LINE 0"), (1, "LINE 1")]
        await until(lambda: len(fake.batches) == 2)
        await lines.aclose()
        assert scheduler.waiting_lines == 0
        fake.held["line 2"].set()
        await translated(scheduler, of("last"))

    asyncio.run(work())
    assert fake.batches == [["line 0", "line 1"], ["line 2", "line 3"], ["last"]]


def test_a_job_has_limited_lines_per_batch_and_other_jobs_fill_it(fake):
    fake.engine.batch_tokens = 100
    scheduler = Scheduler(fake, 1000, model_metrics())

    async def work():
        fake.gate.clear()
        first = asyncio.ensure_future(translated(scheduler, of("first")))
        await until(lambda: fake.batches)
        stream = scheduler.translate(of(*(f"stream {i}" for i in range(6))), 2)
        line = asyncio.ensure_future(anext(stream))
        await until(lambda: scheduler.waiting_lines == 6)
        whole = asyncio.ensure_future(translated(scheduler, of(*(f"whole {i}" for i in range(5)))))
        await until(lambda: scheduler.waiting_lines == 11)
        fake.gate.set()
        numbers = [(await line)[0], *[number async for number, _ in stream]]
        assert sorted(numbers) == list(range(6))
        await asyncio.gather(first, whole)

    asyncio.run(work())
    scheduler.close()
    assert fake.batches[1] == ["stream 0", "whole 0", "stream 1", "whole 1", "whole 2", "whole 3", "whole 4"]
    assert fake.batches[2:] == [["stream 2", "stream 3"], ["stream 4", "stream 5"]]


def test_an_error_is_reported_to_the_affected_clients(scheduler, fake):
    async def work():
        fake.error = RuntimeError("broken")
        with pytest.raises(RuntimeError, match="broken"):
            await translated(scheduler, of("a"))
        fake.error = None
        [found] = await translated(scheduler, of("b"))
        assert found.text == "B"

    asyncio.run(work())


def test_closing_waits_for_all_threads_together(monkeypatch):
    held = Scheduler(FakeTranslator(replicas=3), 100, model_metrics())
    threads, now, waits = held._threads, 0.0, []

    def join(seconds):
        nonlocal now
        waits.append(seconds)
        now += seconds

    held._threads = [SimpleNamespace(join=join) for _ in threads]
    monkeypatch.setattr("nmt.extensions.serve.scheduler.time", SimpleNamespace(monotonic=lambda: now))
    held.close()
    assert waits == [JOIN_SECONDS, 0.0, 0.0, 0.0]
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


def test_closing_the_queue_ends_waiting_jobs_but_not_running_batches(scheduler, fake):
    async def work():
        fake.gate.clear()
        begun = asyncio.ensure_future(translated(scheduler, of("begun")))
        await until(lambda: fake.batches)
        waiting = asyncio.ensure_future(translated(scheduler, of("waiting")))
        await until(lambda: scheduler.waiting_lines)
        closing = asyncio.ensure_future(asyncio.to_thread(scheduler.close))
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            await translated(scheduler, of("late"))
        fake.gate.set()
        [found] = await begun
        assert found.text == "BEGUN"
        await closing

    asyncio.run(work())
