"""The queue of a model, in which lines from all clients are translated together.

Threads take lines from the queue in batches. A batch takes one line from each waiting job in turn, so that a long document
does not delay a short request. Batches have the model's batch size; one that is not full waits a few milliseconds for more lines.
"""

import asyncio
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Final

from nmt.extensions.serve.problems import busy
from nmt.log import log
from nmt.translate.requests import Request
from nmt.translate.results import Translation
from nmt.translate.translator import Translator

MIN_CHARACTERS_PER_TOKEN: Final = 3  # to estimate token counts; usually too low, so batches stay small enough
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
    """

    requests: Sequence[Request]
    max_batch_lines: int
    done: "asyncio.Queue[list[NumberedTranslation] | Exception]" = field(default_factory=asyncio.Queue)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    next: int = 0

    def report(self, done: list[NumberedTranslation] | Exception) -> None:
        """Pass translations or an error to the waiting client, without blocking."""
        self.loop.call_soon_threadsafe(self.done.put_nowait, done)


class Scheduler:
    """The queue of one Translator, with the threads that translate its lines.

    wait_seconds: how long a batch that is not full waits for more lines
    max_lines: maximum number of waiting lines of all clients
    """

    def __init__(self, translator: Translator, wait_seconds: float, max_lines: int) -> None:
        self.translator, self.wait_seconds, self.max_lines = translator, wait_seconds, max_lines
        self.waiting_lines = 0
        self._batch_characters = translator.engine.batch_tokens * MIN_CHARACTERS_PER_TOKEN
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._seconds_per_line = 0.01  # moving average over batches, for one thread
        self._threads = [
            threading.Thread(target=self._work, name=TRANSLATOR, daemon=True) for _ in range(translator.engine.replicas)
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
        with self._changed:
            if self._is_closed:
                raise ClosedError
            if self.waiting_lines and self.waiting_lines + len(requests) > self.max_lines:
                raise busy(self.waiting_lines * self._seconds_per_line / len(self._threads))
            self._jobs.append(job)
            self.waiting_lines += len(requests)
            self._changed.notify_all()
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
        with self._changed:
            self._is_closed = True
            jobs, self.waiting_lines = list(self._jobs), 0
            self._jobs.clear()
            self._changed.notify_all()
        for job in jobs:
            job.report(ClosedError())
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _drop(self, job: _Job) -> None:
        """Forget a job's lines that no thread has taken."""
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
                for job in dict.fromkeys(job for job, _ in batch):
                    self._drop(job)
                    job.report(error)
                continue
            share = (time.monotonic() - began) / len(batch)
            self._seconds_per_line += 0.1 * (share - self._seconds_per_line)
            done_by_job: dict[_Job, list[NumberedTranslation]] = {}
            for (job, i), translation in zip(batch, translations, strict=True):
                done_by_job.setdefault(job, []).append((i, translation))
            for job, done in done_by_job.items():
                job.report(done)

    def _next_batch(self) -> list[tuple[_Job, int]] | None:
        """The next batch as (job, line number) pairs; empty if the clients gave up, None if the scheduler is closed."""
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
            counts: Counter[_Job] = Counter()
            later: list[_Job] = []  # jobs whose remaining lines must wait for the next batch
            while self._jobs and characters < self._batch_characters:
                job = self._jobs.popleft()
                batch.append((job, job.next))
                characters += len(job.requests[job.next].text) + MIN_CHARACTERS_PER_TOKEN
                job.next += 1
                counts[job] += 1
                if job.next < len(job.requests):
                    queue = self._jobs if counts[job] < job.max_batch_lines else later
                    queue.append(job)  # at the end, so that jobs take turns
            self._jobs.extend(later)
            self.waiting_lines -= len(batch)
        return batch

    def _is_full(self) -> bool:
        """Whether there are enough waiting lines for a full batch."""
        characters = 0
        for job in self._jobs:
            for request in job.requests[job.next : job.next + job.max_batch_lines]:
                characters += len(request.text) + MIN_CHARACTERS_PER_TOKEN
                if characters >= self._batch_characters:
                    return True
        return False
