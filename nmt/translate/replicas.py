"""Searches batches in parallel, with results in order: in processes forked from this one, or in threads.

Forked processes have their own interpreters and share the loaded weights as long as nobody writes to them.
"""

import gc
import multiprocessing
import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import cache, partial
from threading import Lock
from typing import Any, Final, Generic, TypeVar

import torch

from nmt import signals
from nmt.data.workers import Heartbeat, become_worker, kill_workers, run_task, wait_for_result
from nmt.device import use_threads
from nmt.errors import ResourceError

STDERR_DESCRIPTOR: Final = 2  # descriptors up to this one may be sockets of a supervisor

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

if hasattr(os, "register_at_fork"):
    # A fork has copies of its parent's objects, but not of its threads. It must not collect objects that the parent has dropped:
    # the destructor of a CTranslate2 model waits for its threads, which would take forever in a fork.
    os.register_at_fork(after_in_child=gc.freeze)


@signals.WORKING_ON.append
def _has_forks() -> bool:
    """Whether forks live. At its exit, Python would wait for them, and for a stopped one forever; they end with this process."""
    return bool(multiprocessing.active_children())


def are_processes(kind: str) -> bool:
    """Whether replicas on this kind of device (cpu, cuda) are processes."""
    return kind == "cpu" and sys.platform == "linux"


class Replicas(Generic[_Item, _Result]):
    """A pool of workers, which starts when there is work for more than one of them.

    work: called with an item in a worker, or in this process if there is only one item
    number: number of workers
    threads: threads per worker process. This process must use a single thread, because a fork does not copy a thread pool
    prepare: called once in this process, before the second item
    """

    def __init__(
        self,
        work: Callable[[_Item], _Result],
        number: int,
        device: torch.device,
        threads: int,
        prepare: Callable[[], None],
    ) -> None:
        self.number, self._threads, self._device = number, threads, device
        self._work, self._prepare = work, cache(prepare)
        self._pool: Executor | None = None
        self._lock = Lock()  # protects the pool and its count, because a server's threads search in parallel
        self._num_items = 0

    def in_order(self, items: Sequence[_Item]) -> Iterator[_Result]:
        """Yield the result of each item, in order.

        If `signals.check` raises, between items or while waiting, processes are killed and no further item starts. This is not
        called while another thread prepares.
        Raises ResourceError if a process is lost, and any error that the work raises.
        """
        with self._lock:
            self._num_items += len(items)
            if self._num_items > 1:
                self._prepare()
        if len(items) <= 1 or self.number == 1:
            for item in items:
                signals.check()
                yield self._work(item)
            return
        with self._lock:
            pool = self._pool = self._pool or self._start_pool()
        work: Callable[[_Item], _Result] = run_task if are_processes(self._device.type) else self._work
        heartbeat, complete = Heartbeat(pool), False
        try:
            with warnings.catch_warnings():
                # Python warns about threads in a process that forks. Ours hold no lock that a replica takes.
                warnings.simplefilter("ignore", DeprecationWarning)
                futures = [pool.submit(work, item) for item in items]
            for future in futures:
                yield wait_for_result(future, heartbeat)
            complete = True
        except BrokenProcessPool:
            signals.check()  # a signal may also have stopped the processes
            raise ResourceError(
                "a search process died, perhaps killed for lack of memory (use fewer --replicas or a smaller --batch-tokens)"
            ) from None
        finally:
            if not complete:
                with self._lock:
                    self._pool = None if self._pool is pool else self._pool
                kill_workers(pool)

    def _start_pool(self) -> Executor:
        if not are_processes(self._device.type):
            initializer = partial(_use_own_stream, self._device) if self._device.type == "cuda" else None
            return ThreadPoolExecutor(self.number, initializer=initializer)
        fork = multiprocessing.get_context("fork")
        return ProcessPoolExecutor(self.number, fork, _become_replica, (self._work, self._threads))


def _use_own_stream(device: torch.device) -> None:
    """Give this thread its own CUDA stream, which waits for the weights but not for other threads."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.default_stream(device))
    torch.cuda.set_stream(stream)


def _become_replica(work: Callable[[Any], Any], threads: int) -> None:
    _close_sockets()
    become_worker(lambda: work)
    use_threads(threads)


def _close_sockets() -> None:
    """Close the sockets that a fork of a server inherits, because a connection ends only when every process has closed it."""
    for name in os.listdir("/dev/fd"):
        descriptor = int(name)
        with suppress(OSError):  # the descriptor of the listing itself, which is already closed
            if descriptor > STDERR_DESCRIPTOR and stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.close(descriptor)
