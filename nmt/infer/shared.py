"""One translation over several processes: the leader reads and writes, and all translate a part of each window of lines."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Final

import msgspec

from nmt.dist import World
from nmt.errors import Interrupted, UserError
from nmt.infer.translator import Tally, Translation, Translator

IDLE_SECONDS: Final = 60.0  # after which those that wait are told that there is nothing yet


class Job(msgspec.Struct):
    """Lines to translate, of all ranks together. first: the number of the first of them in the text called `place`."""

    lines: list[str]
    place: str
    first: int


class Part(msgspec.Struct):
    """What one rank made of its lines, and what there is to say of them."""

    translations: list[Translation]
    cut: list[str]
    failed: list[str]


class Noted(Tally):
    """Lines of one sort, kept for the leader to tell."""

    def __init__(self) -> None:
        super().__init__(lambda message: None)
        self.messages: list[str] = []

    def add(self, message: str) -> None:
        self.messages.append(message)

    def taken(self) -> list[str]:
        """What was noted since this was last asked."""
        taken, self.messages = self.messages, []
        return taken


class SharedTranslator:
    """A translator over the ranks of a world, for its leader: it is asked like any other."""

    def __init__(self, translator: Translator, world: World) -> None:
        self.world, self.cut, self.failed = world, translator.cut, translator.failed
        self.max_characters = translator.max_characters
        self._worker = Worker(translator, world)
        self._told = time.monotonic()

    def translate(
        self, lines: Sequence[str], place: str = "input", first: int = 1, check: Callable[[], None] | None = None
    ) -> list[Translation]:
        """See Translator. No rank may stop alone, so that check is not called before all are done."""
        parts = self._worker.work(Job(list(lines), place, first))
        for part in parts:
            for message in part.cut:
                self.cut.add(message)
            for message in part.failed:
                self.failed.add(message)
        self._told = time.monotonic()
        return [translation for part in parts for translation in part.translations]

    def wait(self) -> None:
        """To be called while there is nothing to translate, so that no rank is taken for lost."""
        if time.monotonic() - self._told > IDLE_SECONDS:
            self.translate([])


@contextmanager
def leading(translator: Translator, world: World) -> Iterator[SharedTranslator]:
    """The translator of the leader; the other ranks end with the block, by whatever of the leader's own it ends."""
    try:
        yield SharedTranslator(translator, world)
    except (Interrupted, UserError, OSError):
        world.gather(b"")
        raise
    world.gather(b"")


class Worker:
    """What every rank does with a job: its part of the lines."""

    def __init__(self, translator: Translator, world: World) -> None:
        self.translator, self.world = translator, world
        self._cut, self._failed = Noted(), Noted()
        translator.cut, translator.failed = self._cut, self._failed

    def work(self, job: Job) -> list[Part]:
        """Tell all ranks a job and do it with them; returns each one's part. The leader's turn."""
        self.world.gather(msgspec.json.encode(job))
        return self._together(job)

    def serve(self) -> None:
        """Do what the leader tells until it has no more."""
        while job := self.world.gather(b"")[0]:
            self._together(msgspec.json.decode(job, type=Job))

    def _together(self, job: Job) -> list[Part]:
        start, end = bounds([len(line) + 1 for line in job.lines], self.world.size)[self.world.rank]
        found = self.translator.translate(job.lines[start:end], job.place, job.first + start)
        part = Part(found, self._cut.taken(), self._failed.taken())
        shares = self.world.gather(msgspec.json.encode(part))
        return [msgspec.json.decode(share, type=Part) for share in shares] if self.world.leads else []


def bounds(sizes: Sequence[int], ranks: int) -> list[tuple[int, int]]:
    """(first, behind the last) of each rank's items: neighbours, of about as much size in each share."""
    total, passed, cuts = sum(sizes), 0, [0]
    for i, size in enumerate(sizes):
        while len(cuts) < ranks and (passed + size / 2) * ranks >= len(cuts) * total:
            cuts.append(i)
        passed += size
    cuts += [len(sizes)] * (ranks + 1 - len(cuts))
    return list(pairwise(cuts))
