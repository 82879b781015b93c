"""The queue of a model: lines of all clients are translated together, and each client gets its own back.

Threads take lines from the queue in batches. A batch takes one line of each waiting job in turn, so that a long document
does not hold up a short question; it is as large as the model's batches, and waits a few milliseconds for more lines.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from nmt.log import log
from nmt.translate.requests import Request
from nmt.translate.results import Translation
from nmt.translate.translator import Translator

MIN_CHARACTERS_PER_TOKEN: Final = 3  # of the estimate by which batches are cut, lower than text has
JOIN_SECONDS: Final = 10.0  # that a thread gets to end


class QueueFullError(Exception):
    """The queue holds as many lines as it may. seconds: after which to ask again"""

    def __init__(self, seconds: float) -> None:
        super().__init__("too many texts are waiting")
        self.seconds = seconds


class ClosedError(Exception):
    """The model is being unloaded, or the server ends."""


@dataclass(eq=False)
class _Job:
    """The lines of one request.

    answer: its translations, set in the loop that waits for it
    next: number of the first line that no thread has taken
    missing: lines without a translation
    """

    requests: Sequence[Request]
    answer: "asyncio.Future[list[Translation]]"
    loop: asyncio.AbstractEventLoop
    translations: list[Translation | None] = field(default_factory=list)
    next: int = 0
    missing: int = 0

    def settle(self, error: BaseException | None) -> None:
        """Give the answer to the client that waits, unless it has gone away."""

        def give() -> None:
            if self.answer.done():
                return
            if error is not None:
                self.answer.set_exception(error)
            else:
                self.answer.set_result([translation for translation in self.translations if translation is not None])

        self.loop.call_soon_threadsafe(give)


class Scheduler:
    """The queue of one Translator, and the threads that empty it.

    wait_seconds: that a batch that is not full waits for more lines
    max_lines: of all clients that may wait
    """

    def __init__(self, translator: Translator, wait_seconds: float, max_lines: int) -> None:
        self.translator, self.wait_seconds, self.max_lines = translator, wait_seconds, max_lines
        self.waiting_lines = 0
        self._batch_characters = translator.engine.batch_tokens * MIN_CHARACTERS_PER_TOKEN
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._seconds_a_line = 0.01  # of one thread, a moving average
        self._threads = [
            threading.Thread(target=self._work, name=f"translator {i}", daemon=True)
            for i in range(translator.engine.replicas)
        ]
        for thread in self._threads:
            thread.start()

    async def translate(self, requests: Sequence[Request]) -> list[Translation]:
        """A translation for each request. Cancelling it drops the lines that no thread has taken.

        Raises QueueFullError, ClosedError, and the error of a model that cannot translate.
        """
        loop = asyncio.get_running_loop()
        job = _Job(requests, loop.create_future(), loop, [None] * len(requests), 0, len(requests))
        if not requests:
            return []
        with self._changed:
            if self._is_closed:
                raise ClosedError
            if self.waiting_lines and self.waiting_lines + len(requests) > self.max_lines:
                raise QueueFullError(self.waiting_lines * self._seconds_a_line / len(self._threads))
            self._jobs.append(job)
            self.waiting_lines += len(requests)
            self._changed.notify_all()
        try:
            return await job.answer
        finally:
            self._drop(job)

    def close(self, wait: bool = True) -> None:
        """End the threads; jobs that are not finished get a ClosedError. wait: for the batches that are being translated"""
        with self._changed:
            self._is_closed = True
            jobs, self.waiting_lines = list(self._jobs), 0
            self._jobs.clear()
            self._changed.notify_all()
        for job in jobs:
            job.settle(ClosedError())
        for thread in self._threads if wait else ():
            thread.join(JOIN_SECONDS)

    def _drop(self, job: _Job) -> None:
        """Forget the lines of a job that no thread has taken."""
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
                self.waiting_lines -= len(job.requests) - job.next

    def _work(self) -> None:
        """Translate batches until the scheduler is closed."""
        while (batch := self._next_batch()) is not None:
            if not batch:
                continue
            began = time.monotonic()
            try:
                translations = self.translator.translate([job.requests[i] for job, i in batch])
            except Exception as error:
                log.error(f"a batch failed: {type(error).__name__}: {error}")
                for job in {id(job): job for job, _ in batch}.values():
                    self._drop(job)
                    job.settle(error)
                continue
            share = (time.monotonic() - began) / len(batch)
            self._seconds_a_line += 0.1 * (share - self._seconds_a_line)
            with self._changed:
                for (job, i), translation in zip(batch, translations, strict=True):
                    job.translations[i] = translation
                    job.missing -= 1
                finished = {id(job): job for job, _ in batch if not job.missing}
            for job in finished.values():
                job.settle(None)

    def _next_batch(self) -> list[tuple[_Job, int]] | None:
        """The next lines: the job and the number in it of each, none if they were given up; None when this is closed."""
        with self._changed:
            while not self._jobs and not self._is_closed:
                self._changed.wait()
            end = time.monotonic() + self.wait_seconds
            while not self._is_closed and self._jobs and not self._is_full():
                if (left := end - time.monotonic()) <= 0:
                    break
                self._changed.wait(left)
            if self._is_closed:
                return None
            batch: list[tuple[_Job, int]] = []
            characters = 0
            while self._jobs and characters < self._batch_characters:
                job = self._jobs.popleft()
                batch.append((job, job.next))
                characters += len(job.requests[job.next].text) + MIN_CHARACTERS_PER_TOKEN
                job.next += 1
                if job.next < len(job.requests):
                    self._jobs.append(job)  # behind the others
            self.waiting_lines -= len(batch)
        return batch

    def _is_full(self) -> bool:
        """Whether the waiting lines fill a batch."""
        characters = 0
        for job in self._jobs:
            for request in job.requests[job.next :]:
                characters += len(request.text) + MIN_CHARACTERS_PER_TOKEN
                if characters >= self._batch_characters:
                    return True
        return False
