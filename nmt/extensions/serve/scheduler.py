"""The queue of a model, in which lines from all clients are translated together.

A thread that is free takes the waiting lines at once, or its share if others are free too. While all threads translate, lines
collect, and then share a batch.
Long requests have their own queue, from which a batch takes one line of each in turn. They never share a batch with short
requests, and one more thread translates short requests whenever long ones occupy all others.
"""

import asyncio
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from nmt.extensions.serve.metrics import ModelMetrics
from nmt.extensions.serve.problems import busy
from nmt.log import log
from nmt.translate.requests import Request
from nmt.translate.results import Translation
from nmt.translate.translator import Translator, even_batch_tokens

MIN_CHARACTERS_PER_TOKEN: Final = 3  # to estimate token counts; usually too low, so batches stay small enough
MAX_SHORT_LINES: Final = 8  # of a request that a long document must not delay
JOIN_SECONDS: Final = 5.0  # total time in which the threads must finish
TRANSLATOR: Final = "translator"  # name of the threads that translate

NumberedTranslation = tuple[int, Translation]
"""The index of a request in its list, and its translation."""


class ClosedError(Exception):
    """The model is being unloaded, or the server is shutting down."""


@dataclass(eq=False)
class _Job:
    """The lines of one request.

    done: queue from the threads to the waiting event loop, with the translated lines of each batch or the error that ends the job
    max_batch_lines: maximum number of the job's lines in one batch
    next: index of the first line that no thread has taken
    since: time of arrival, by time.monotonic
    """

    requests: Sequence[Request]
    max_batch_lines: int
    done: "asyncio.Queue[list[NumberedTranslation] | Exception]" = field(default_factory=asyncio.Queue)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    next: int = 0
    since: float = field(default_factory=time.monotonic)

    @property
    def is_long(self) -> bool:
        return len(self.requests) > MAX_SHORT_LINES

    def report(self, done: list[NumberedTranslation] | Exception) -> None:
        """Pass translations or an error to the waiting client, without blocking. Does nothing if its event loop has ended."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.done.put_nowait, done)


class Scheduler:
    """The queue of one Translator, with the threads that translate its lines.

    max_lines: maximum number of waiting lines of all clients
    metrics: of the model
    """

    def __init__(self, translator: Translator, max_lines: int, metrics: ModelMetrics) -> None:
        self.translator, self.max_lines, self.metrics = translator, max_lines, metrics
        self.waiting_lines = 0
        self._batch_characters = translator.engine.batch_tokens * MIN_CHARACTERS_PER_TOKEN
        self._short, self._long = deque[_Job](), deque[_Job]()
        self._num_long_batches = 0  # that are being translated
        self._num_idle = 0  # ordinary threads that wait for lines
        self._is_turn_of_long = False  # if both queues have lines
        self._lock = threading.Lock()
        self._ordinary, self._spare = threading.Condition(self._lock), threading.Condition(self._lock)
        self._is_closed = False
        self._seconds_per_line = 0.01  # moving average over batches, for one thread
        self._num_ordinary = translator.engine.callers
        self._threads = [
            threading.Thread(target=self._work, args=(number == self._num_ordinary,), name=TRANSLATOR, daemon=True)
            for number in range(self._num_ordinary + 1)
        ]
        for thread in self._threads:
            thread.start()

    async def translate(
        self, requests: Sequence[Request], max_batch_lines: int = sys.maxsize
    ) -> AsyncGenerator[NumberedTranslation, None]:
        """Yield the translations of requests with their indices, each as soon as its batch is translated.

        Closing the iterator drops the lines that no thread has taken yet.
        max_batch_lines: maximum number of these requests in one batch; small batches finish earlier
        Raises ProblemError if the queue is full, ClosedError if it is closed, and any error of the model.
        """
        if not requests:
            return
        job, missing = _Job(requests, max_batch_lines), len(requests)
        with self._lock:
            if self._is_closed:
                raise ClosedError
            if self.waiting_lines and self.waiting_lines + len(requests) > self.max_lines:
                raise busy(self.waiting_lines * self._seconds_per_line / self._num_ordinary)
            self._queue_of(job).append(job)
            self.waiting_lines += len(requests)
            self._wake()
        try:
            while missing:
                done = await job.done.get()
                if isinstance(done, Exception):
                    raise done
                missing -= len(done)
                for numbered in done:
                    yield numbered
        finally:
            self._drop(job)

    def close(self) -> None:
        """Stop the threads after their current batches. This waits up to JOIN_SECONDS.

        Jobs with waiting lines get a ClosedError.
        """
        end = time.monotonic() + JOIN_SECONDS
        with self._lock:
            self._is_closed = True
            jobs, self.waiting_lines = [*self._short, *self._long], 0
            self._short.clear()
            self._long.clear()
            self._ordinary.notify_all()
            self._spare.notify_all()
        for job in jobs:
            job.report(ClosedError())
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _drop(self, job: _Job) -> None:
        """Forget a job's lines that no thread has taken."""
        with self._lock:
            if job in (queue := self._queue_of(job)):
                queue.remove(job)
                self.waiting_lines -= len(job.requests) - job.next

    def _queue_of(self, job: _Job) -> deque[_Job]:
        return self._long if job.is_long else self._short

    def _work(self, is_spare: bool) -> None:
        """Translate batches until the scheduler is closed. is_spare: only short requests, while long ones occupy all others"""
        while batch := self._next_batch(is_spare):
            began = time.monotonic()
            try:
                translations = self.translator.translate([job.requests[i] for job, i in batch])
            except Exception as error:
                log.error(f"a batch failed: {type(error).__name__}: {error}")
                for job in dict.fromkeys(job for job, _ in batch):
                    self._drop(job)
                    job.report(error)
                continue
            finally:
                self._end_batch(batch)
            seconds = time.monotonic() - began
            self._seconds_per_line += 0.1 * (seconds / len(batch) - self._seconds_per_line)
            self.metrics.count_batch(translations, seconds)
            done_by_job: dict[_Job, list[NumberedTranslation]] = {}
            for (job, i), translation in zip(batch, translations, strict=True):
                done_by_job.setdefault(job, []).append((i, translation))
            for job, done in done_by_job.items():
                job.report(done)

    def _next_batch(self, is_spare: bool) -> list[tuple[_Job, int]]:
        """The next batch as pairs of a job and a line number; empty if the scheduler is closed."""
        with self._lock:
            while (queue := self._next_queue(is_spare)) is None and not self._is_closed:
                self._num_idle += not is_spare
                (self._spare if is_spare else self._ordinary).wait()
                self._num_idle -= not is_spare
            if queue is None or self._is_closed:
                return []
            batch = self._taken(queue)
            self.waiting_lines -= len(batch)
            self._is_turn_of_long = queue is self._short
            self._num_long_batches += queue is self._long
            self._wake()
        return batch

    def _wake(self) -> None:
        """Wake a waiting thread that can take lines."""
        if self._short or self._long:
            self._ordinary.notify()
        if self._next_queue(is_spare=True):
            self._spare.notify()

    def _next_queue(self, is_spare: bool) -> deque[_Job] | None:
        """The queue that a thread takes lines from; None if it must wait."""
        if is_spare:
            return self._short if self._short and self._num_long_batches == self._num_ordinary else None
        queues = [self._long, self._short] if self._is_turn_of_long else [self._short, self._long]
        return next(filter(None, queues), None)

    def _taken(self, queue: deque[_Job]) -> list[tuple[_Job, int]]:
        """Take a batch of lines from a queue, one of each job in turn."""
        batch: list[tuple[_Job, int]] = []
        characters, most = 0, self._share(queue)
        counts: Counter[_Job] = Counter()
        later: list[_Job] = []  # jobs with more lines, but not for this batch
        while queue and characters < most:
            job = queue.popleft()
            if not job.next:
                self.metrics.queue_seconds.observe(time.monotonic() - job.since)
            batch.append((job, job.next))
            characters += _characters(job.requests[job.next])
            job.next += 1
            counts[job] += 1
            if job.next < len(job.requests):
                (queue if counts[job] < job.max_batch_lines else later).append(job)  # at the end of the queue
        queue.extend(later)
        return batch

    def _share(self, queue: deque[_Job]) -> int:
        """The number of characters to take from a queue, so that other idle threads get as many."""
        if not self._num_idle:
            return self._batch_characters
        characters, most = 0, self._batch_characters * (1 + self._num_idle)
        for job in queue:
            for request in islice(job.requests, job.next, None):
                characters += _characters(request)
                if characters >= most:
                    return self._batch_characters
        return even_batch_tokens(characters, self._batch_characters, 1 + self._num_idle)

    def _end_batch(self, batch: Sequence[tuple[_Job, int]]) -> None:
        """Count a batch as translated."""
        with self._lock:
            self._num_long_batches -= batch[0][0].is_long


def _characters(request: Request) -> int:
    """The size of a line, with its end."""
    return len(request.text) + MIN_CHARACTERS_PER_TOKEN
