"""Translation with several processes: the leader reads and writes, and each rank translates a share of every window.

Requests and translations go through the store that connects the ranks. So a worker can wait for the next line without
a time limit, and the leader waits for a worker at most --timeout minutes.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from nmt import signals
from nmt.dist import World
from nmt.errors import Interrupted, ResourceError
from nmt.log import Bar
from nmt.translate.requests import Request
from nmt.translate.results import Translation
from nmt.translate.translator import Translator

RANK_POLL_SECONDS: Final = 0.5  # interval between checks for signals
STOP: Final = "stop"  # key under which a waiting worker leaves its signal


class JobResult(msgspec.Struct):
    """The translations of a job. signal: the number of the signal that stopped the rank, or None"""

    translations: list[Translation]
    signal: int | None = None


class SharedTranslator:
    """The leader's translator, which shares its lines with the other ranks of a world.

    seconds: time limit for a rank to translate its share of a window
    """

    def __init__(self, translator: Translator, world: World, seconds: float) -> None:
        self.translator, self.world, self.seconds = translator, world, seconds
        self.max_characters, self.context = translator.max_characters, translator.context

    def translate(self, requests: Sequence[Request], bar: Bar) -> list[Translation]:
        """See Translator. Raises ResourceError if a rank does not answer, and Interrupted if one received a signal."""
        (_, end), *others = ranges([len(request.text) + 1 for request in requests], self.world.size)
        for rank, (first, last) in enumerate(others, 1):
            self.world.post(f"job/{rank}", msgspec.json.encode(requests[first:last]))
        translations = self.translator.translate(requests[:end], bar)
        deadline = time.monotonic() + self.seconds
        for rank in range(1, self.world.size):
            received = self._receive(rank, deadline)
            bar.advance(len(received))
            translations += received
        return translations

    def _receive(self, rank: int, deadline: float) -> list[Translation]:
        while (content := self.world.fetch(f"result/{rank}", RANK_POLL_SECONDS)) is None:
            signals.check()
            if time.monotonic() > deadline:
                raise ResourceError(
                    f"rank {rank} did not answer within --timeout (see its own error above, if there is one, or use a longer "
                    "--timeout)"
                )
        result = msgspec.json.decode(content, type=JobResult)
        if result.signal is not None:
            raise Interrupted(result.signal)
        return result.translations

    def idle(self) -> None:
        """Raise Interrupted if a worker received a signal. Called while no line is waiting."""
        if self.world.posted(STOP) and (number := self.world.fetch(STOP, RANK_POLL_SECONDS)):
            raise Interrupted(int(number))


@contextmanager
def leading(translator: Translator, world: World, seconds: float) -> Iterator[SharedTranslator]:
    """Context with the leader's shared translator. The other ranks stop when the block ends."""
    try:
        yield SharedTranslator(translator, world, seconds)
    finally:
        with suppress(RuntimeError, ResourceError):  # a worker has already exited, or the store does not answer
            for rank in range(1, world.size):
                world.post(f"job/{rank}", b"")


def serve(translator: Translator, world: World) -> None:
    """Translate jobs until the leader has no more or has exited."""
    while content := _next_job(world):
        try:
            result = JobResult(translator.translate(msgspec.json.decode(content, type=list[Request])))
        except Interrupted as error:
            result = JobResult([], error.signal_number)
        with suppress(RuntimeError):  # the store fails once the leader has exited
            world.post(f"result/{world.rank}", msgspec.json.encode(result))


def _next_job(world: World) -> bytes:
    """The leader's next job; empty if there are no more, or if the leader has exited."""
    with suppress(RuntimeError):
        while (content := world.fetch(f"job/{world.rank}", RANK_POLL_SECONDS)) is None:
            if number := signals.innermost().received:
                world.post(STOP, str(number).encode())
        return content
    return b""


def ranges(sizes: Sequence[int], ranks: int) -> list[tuple[int, int]]:
    """The range (first, end) of consecutive items for each rank, chosen so that the total sizes are about equal."""
    ends = np.cumsum(sizes, dtype=np.int64)
    middles, total = ends - np.array(sizes) / 2, sum(sizes)
    cuts = np.searchsorted(ranks * middles, total * np.arange(1, ranks)).tolist()
    return list(pairwise([0, *cuts, len(sizes)]))
