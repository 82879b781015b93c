"""Work spread over processes, its results in the order of the work, so that their number changes no result."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Final, TypeVar

from nmt.errors import ResourceError
from nmt.signals import STOP_SIGNALS, Signals

Item = TypeVar("Item")
Result = TypeVar("Result")

WAITING_PER_WORKER: Final = 3


def in_order(
    task: Callable[[Item], Result], items: Iterable[Item], workers: int, signals: Signals
) -> Generator[Result, None, None]:
    """task(item) for each item, in their order; with one worker, in this process.

    task: picklable; sent to each worker once
    Raises Interrupted between two items when a signal asked to stop, ResourceError when a worker is lost, and whatever
    the task raises.
    """
    if workers == 1:
        for item in items:
            signals.check()
            yield task(item)
        return
    waiting: deque[Future[Any]] = deque()
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), begin, (task,))
    try:
        for item in items:
            waiting.append(pool.submit(run_task, item))
            while len(waiting) >= WAITING_PER_WORKER * workers:
                yield _next(waiting, signals)
        while waiting:
            yield _next(waiting, signals)
    except BrokenProcessPool:
        signals.check()
        raise ResourceError("a worker process was lost, killed perhaps for want of memory (fewer --workers)") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _next(waiting: deque[Future[Any]], signals: Signals) -> Any:
    result = waiting.popleft().result()
    signals.check()
    return result


_task: Callable[[Any], Any] | None = None  # of a worker process


def begin(task: Callable[[Any], Any]) -> None:
    """Make a process a worker: it leaves signals to its parent, and ends when that does or, by SIGTERM, when another was lost."""
    global _task
    _task = task
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def run_task(item: Any) -> Any:
    """What a worker does with an item, called in its process."""
    assert _task is not None
    return _task(item)
