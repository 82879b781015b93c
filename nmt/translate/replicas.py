"""Batches searched side by side, their results in order: by processes forked from this one, or by threads where that cannot be.

A process has an interpreter of its own, so that the Python between two products waits for nobody's; what was loaded before
is shared, as long as nobody writes to it.
"""

import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any, Final, Generic, TypeVar

import torch

from nmt.data.workers import begin, run_task
from nmt.device import use_threads
from nmt.errors import ResourceError

Item = TypeVar("Item")
Result = TypeVar("Result")

LOOK_SECONDS: Final = 0.2  # between looks at whether the work is still wanted


def by_processes(kind: str) -> bool:
    """Whether replicas on this kind of device (cpu, cuda) are processes."""
    return kind == "cpu" and sys.platform == "linux"


class Replicas(Generic[Item, Result]):
    """So many workers that each do `work`; they begin when there is first work for more than one.

    before: called in this process, once, when there is more than one item to work at, or another one
    threads: of each, where they are processes. This process must have used one only: those of a pool are not forked with it
    """

    def __init__(
        self,
        work: Callable[[Item], Result],
        number: int,
        device: torch.device,
        threads: int,
        before: Callable[[], None],
    ) -> None:
        self.number, self._threads, self._device = number, threads, device
        self._work = work
        self._before: Callable[[], None] | None = before
        self._pool: Executor | None = None
        self._items = 0  # so far

    def in_order(self, items: Sequence[Item], check: Callable[[], None] | None) -> Iterator[Result]:
        """The result of each item, in their order.

        check: called now and then; may raise to stop: then processes are ended where they are, and no other item is begun
        Raises ResourceError when a process is lost, and what the work raises.
        """
        self._items += len(items)
        if self._items > 1 and self._before is not None:
            self._before()
            self._before = None
        if len(items) <= 1 or self.number == 1:
            for item in items:
                if check is not None:
                    check()
                yield self._work(item)
            return
        if self._pool is None:
            self._pool = self._begin()
        work: Callable[[Item], Result] = run_task if by_processes(self._device.type) else self._work
        whole = False
        try:
            with warnings.catch_warnings():
                # of threads in a process that forks: ours hold no lock that a replica takes
                warnings.simplefilter("ignore", DeprecationWarning)
                waiting = [self._pool.submit(work, item) for item in items]
            for future in waiting:
                yield _result_of(future, check)
            whole = True
        except BrokenProcessPool:
            if check is not None:
                check()  # a signal may have ended them too
            told = "a process that searched was lost, killed perhaps for want of memory (fewer --replicas, or --batch-tokens)"
            raise ResourceError(told) from None
        finally:
            if not whole:
                self._end()

    def _begin(self) -> Executor:
        if not by_processes(self._device.type):
            own = partial(_own_stream, self._device) if self._device.type == "cuda" else None
            return ThreadPoolExecutor(self.number, initializer=own)
        fork = multiprocessing.get_context("fork")
        return ProcessPoolExecutor(self.number, fork, _begin, (self._work, self._threads))

    def _end(self) -> None:
        """Let go of the workers. What they work at is for nobody, and they hold nothing: processes are not waited for."""
        assert self._pool is not None
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
        self._pool = None


def _result_of(future: "Future[Result]", check: Callable[[], None] | None) -> Result:
    while True:
        if check is not None:
            check()
        if not wait([future], LOOK_SECONDS).not_done:
            return future.result()


def _own_stream(device: torch.device) -> None:
    """What this thread asks of a GPU need not wait for what the others ask, only for the weights to be there."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.default_stream(device))
    torch.cuda.set_stream(stream)


def _begin(work: Callable[[Any], Any], threads: int) -> None:
    """Make a process a replica."""
    begin(work)
    use_threads(threads)
