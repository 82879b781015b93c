"""The queue of a served model: everyone gets their own lines, in turn, and what nobody waits for is dropped."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from nmt.serve.scheduler import ClosedError, QueueFullError, Scheduler
from nmt.translate.requests import Request
from nmt.translate.results import Candidate, Translation


class FakeTranslator:
    """Translates by capitals; waits in each batch until `gate` is open. batches: the texts of each"""

    def __init__(self, batch_tokens=20, replicas=1):
        self.engine = SimpleNamespace(batch_tokens=batch_tokens, replicas=replicas)
        self.batches, self.gate, self.error = [], threading.Event(), None
        self.gate.set()

    def translate(self, requests):
        self.batches.append([request.text for request in requests])
        assert self.gate.wait(30)
        if self.error:
            raise self.error
        return [Translation([Candidate(request.text.upper(), [], 0.0, 0.0)]) for request in requests]


def of(*texts):
    return [Request(text) for text in texts]


async def until(condition):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("never")


@pytest.fixture
def fake():
    return FakeTranslator()


@pytest.fixture
def scheduler(fake):
    made = Scheduler(fake, 0.0, 1000)
    yield made
    fake.gate.set()
    made.close()


def test_each_client_gets_its_own_lines_in_their_order(scheduler):
    async def client(number):
        lines = [f"c{number} l{i}" for i in range(number % 5 + 1)]
        found = await scheduler.translate(of(*lines))
        assert [translation.text for translation in found] == [line.upper() for line in lines]

    async def all_clients():
        await asyncio.gather(*map(client, range(50)))
        assert await scheduler.translate([]) == []

    asyncio.run(all_clients())
    assert scheduler.waiting_lines == 0


def test_a_batch_takes_a_line_of_each_client_in_turn(scheduler, fake):
    async def work():
        fake.gate.clear()
        first = asyncio.ensure_future(scheduler.translate(of("first")))
        await until(lambda: fake.batches)
        long = asyncio.ensure_future(scheduler.translate(of(*(f"long {i:02}" for i in range(20)))))
        await asyncio.sleep(0)
        short = asyncio.ensure_future(scheduler.translate(of("short")))
        await asyncio.sleep(0)
        fake.gate.set()
        await asyncio.gather(first, long, short)

    asyncio.run(work())
    assert fake.batches[1][:3] == ["long 00", "short", "long 01"]
    assert max(len(batch) for batch in fake.batches) < 10  # 20 tokens of 3 characters


def test_lines_wait_a_moment_for_those_of_others(fake):
    scheduler = Scheduler(fake, 10.0, 100)  # and no longer than until the batch is full

    async def work():
        clients = [scheduler.translate(of(f"text {i} " + 10 * "x")) for i in range(6)]
        await asyncio.wait_for(asyncio.gather(*clients), 8)

    asyncio.run(work())
    assert len(fake.batches[0]) > 1
    scheduler.close()


def test_lines_that_nobody_waits_for_are_dropped(scheduler, fake):
    async def work():
        fake.gate.clear()
        first = asyncio.ensure_future(scheduler.translate(of("first")))
        await until(lambda: fake.batches)
        gone = asyncio.ensure_future(scheduler.translate(of(*(f"gone {i}" for i in range(30)))))
        await until(lambda: scheduler.waiting_lines == 30)
        gone.cancel()
        last = asyncio.ensure_future(scheduler.translate(of("last")))
        await until(lambda: scheduler.waiting_lines == 1)
        fake.gate.set()
        await asyncio.gather(first, last)
        with pytest.raises(asyncio.CancelledError):
            await gone

    asyncio.run(work())
    assert fake.batches == [["first"], ["last"]]


def test_a_full_queue_refuses_and_says_when_to_ask_again(fake):
    scheduler = Scheduler(fake, 0.0, 3)

    async def work():
        fake.gate.clear()
        first = asyncio.ensure_future(scheduler.translate(of("first")))
        await until(lambda: fake.batches and not scheduler.waiting_lines)
        second = asyncio.ensure_future(scheduler.translate(of("a", "b")))
        await until(lambda: scheduler.waiting_lines == 2)
        with pytest.raises(QueueFullError) as told:
            await scheduler.translate(of("c", "d"))
        assert told.value.seconds > 0
        fake.gate.set()
        await asyncio.gather(first, second)
        assert len(await scheduler.translate(of(*"abcdefgh"))) == 8  # an empty queue takes any

    asyncio.run(work())
    scheduler.close()


def test_an_error_is_told_to_those_whose_lines_it_met(scheduler, fake):
    async def work():
        fake.error = RuntimeError("broken")
        with pytest.raises(RuntimeError, match="broken"):
            await scheduler.translate(of("a"))
        fake.error = None
        [found] = await scheduler.translate(of("b"))
        assert found.text == "B"

    asyncio.run(work())


def test_a_closed_queue_ends_those_who_wait_but_not_what_is_begun(scheduler, fake):
    async def work():
        fake.gate.clear()
        begun = asyncio.ensure_future(scheduler.translate(of("begun")))
        await until(lambda: fake.batches)
        waiting = asyncio.ensure_future(scheduler.translate(of("waiting")))
        await until(lambda: scheduler.waiting_lines)
        scheduler.close(wait=False)
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            await scheduler.translate(of("late"))
        fake.gate.set()
        [found] = await begun
        assert found.text == "BEGUN"

    asyncio.run(work())
