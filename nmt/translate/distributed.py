"""One translation over several processes: the leader reads and writes, and each translates a part of every window of lines.

Lines and translations go through the store where the ranks met, so that a worker may wait for the next line for as long as a
person takes to type it, and the leader for a worker no longer than it is told.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Final

import msgspec

from nmt.dist import World
from nmt.errors import Interrupted, ResourceError
from nmt.signals import Signals
from nmt.translate.rate_limited_warnings import RateLimitedWarnings
from nmt.translate.requests import Request
from nmt.translate.results import Translation
from nmt.translate.translator import Translator

LOOK_SECONDS: Final = 0.5  # between looks at signals
STOP: Final = "stop"  # where a worker that waits leaves a signal


class Job(msgspec.Struct):
    """Lines for a rank to translate. first: the number of the first of them in the text called `place`."""

    requests: list[Request]
    place: str
    first: int


class Part(msgspec.Struct):
    """What a rank made of its lines, and what there is to say of them; signal: that it received, and stopped for."""

    translations: list[Translation]
    cut: list[str]
    failed: list[str]
    signal: int | None = None


class CollectedWarnings(RateLimitedWarnings):
    """Lines of one sort, kept for the leader to tell."""

    def __init__(self) -> None:
        super().__init__(lambda message: None)
        self.messages: list[str] = []

    def add(self, message: str) -> None:
        self.messages.append(message)


class SharedTranslator:
    """A translator over the ranks of a world, for its leader: it is asked like any other.

    seconds: that a rank may take for its part of a window
    """

    def __init__(self, translator: Translator, world: World, seconds: float) -> None:
        self.translator, self.world, self.seconds = translator, world, seconds
        self.cut, self.failed = translator.cut, translator.failed
        self.max_characters = translator.max_characters

    def translate(
        self, requests: Sequence[Request], place: str, first: int, check: Callable[[], None] | None
    ) -> list[Translation]:
        """See Translator. Raises ResourceError naming a rank that does not answer, Interrupted for one that was signalled."""
        own, *others = ranges([len(request.text) + 1 for request in requests], self.world.size)
        for rank, (start, end) in enumerate(others, 1):
            job = Job(list(requests[start:end]), place, first + start)
            self.world.post(f"job/{rank}", msgspec.json.encode(job))
        translations = self.translator.translate(requests[: own[1]], place, first, check)
        deadline = time.monotonic() + self.seconds
        for rank in range(1, self.world.size):
            part = self._part(rank, deadline, check)
            for message in part.cut:
                self.cut.add(message)
            for message in part.failed:
                self.failed.add(message)
            translations += part.translations
        return translations

    def _part(self, rank: int, deadline: float, check: Callable[[], None] | None) -> Part:
        """What a rank made of its lines."""
        while (content := self.world.fetch(f"part/{rank}", LOOK_SECONDS)) is None:
            if check is not None:
                check()
            if time.monotonic() > deadline:
                raise ResourceError(f"rank {rank} does not answer (--timeout says how many minutes it has)")
        part = msgspec.json.decode(content, type=Part)
        if part.signal is not None:
            raise Interrupted(part.signal)
        return part

    def wait(self) -> None:
        """Called while no line has come: a signal to a worker ends all."""
        if (number := self.world.fetch(STOP, 0)) is not None:
            raise Interrupted(int(number))


@contextmanager
def leading(translator: Translator, world: World, seconds: float) -> Iterator[SharedTranslator]:
    """The translator of the leader; the other ranks end with the block, by whatever it ends."""
    try:
        yield SharedTranslator(translator, world, seconds)
    finally:
        with suppress(RuntimeError):  # a worker that has ended already
            for rank in range(1, world.size):
                world.post(f"job/{rank}", b"")


def serve(translator: Translator, world: World, signals: Signals) -> None:
    """Translate what the leader gives this rank, until it has no more or is gone."""
    while content := _next_job(world, signals):
        part = _translated(translator, msgspec.json.decode(content, type=Job), signals)
        with suppress(RuntimeError):  # of the store, which ends with the leader
            world.post(f"part/{world.rank}", msgspec.json.encode(part))


def _next_job(world: World, signals: Signals) -> bytes:
    """What the leader gives this rank next; nothing when there is no more, or no leader."""
    with suppress(RuntimeError):
        while (content := world.fetch(f"job/{world.rank}", LOOK_SECONDS)) is None:
            if signals.received:
                world.post(STOP, str(signals.received).encode())
        return content
    return b""


def _translated(translator: Translator, job: Job, signals: Signals) -> Part:
    cut, failed = translator.cut, translator.failed = CollectedWarnings(), CollectedWarnings()
    try:
        found = translator.translate(job.requests, job.place, job.first, signals.check)
        return Part(found, cut.messages, failed.messages)
    except Interrupted as error:
        return Part([], [], [], error.signal_number)


def ranges(sizes: Sequence[int], ranks: int) -> list[tuple[int, int]]:
    """(first, behind the last) of each rank's items: neighbours, of about as much size in each share."""
    total, passed, cuts = sum(sizes), 0, [0]
    for i, size in enumerate(sizes):
        while len(cuts) < ranks and (passed + size / 2) * ranks >= len(cuts) * total:
            cuts.append(i)
        passed += size
    cuts += [len(sizes)] * (ranks + 1 - len(cuts))
    return list(pairwise(cuts))
