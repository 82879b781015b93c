"""Work spread over processes, its results in the order of the work, so that their number changes no result."""

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Final, TypeVar

from nmt import registry, signals
from nmt.errors import ResourceError
from nmt.signals import STOP_SIGNALS, signal_at_end_of_parent

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

WAITING_PER_WORKER: Final = 3
LOOK_SECONDS: Final = 0.2  # between checks whether the work shall stop
MAX_IDLE_SECONDS: Final = 600.0  # of processes that have work
MAX_LOST_SECONDS: Final = 5.0  # of a process that has ended, in which its pool or parent finds out itself
LOST_WORKER_MESSAGE: Final = (
    "a worker process was lost, perhaps for lack of memory (give fewer --workers or --replicas)"
)


def in_order(task: Callable[[_Item], _Result], items: Iterable[_Item], workers: int) -> Generator[_Result, None, None]:
    """task(item) for each item, in their order; with one worker, in this process.

    task: picklable; sent to each worker once
    Raises Interrupted when a signal asked to stop, ResourceError when a worker is lost, and whatever the task raises;
    workers end at once then, and when the generator is closed.
    """
    if workers == 1:
        for item in items:
            signals.check()
            yield task(item)
        return
    waiting: deque[Future[Any]] = deque()
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), become_worker, (task, registry.loaded_plugins())
    )
    heartbeat, done = Heartbeat(pool), False
    try:
        for item in items:
            waiting.append(pool.submit(run_task, item))
            while len(waiting) >= WAITING_PER_WORKER * workers:
                yield wait_for_result(waiting.popleft(), heartbeat)
        while waiting:
            yield wait_for_result(waiting.popleft(), heartbeat)
        done = True
    except BrokenProcessPool:
        signals.check()  # it may have ended a worker too
        raise ResourceError(LOST_WORKER_MESSAGE) from None
    finally:
        if not done:
            kill_workers(pool)
        pool.shutdown(cancel_futures=True)


def wait_for_result(future: "Future[_Result]", heartbeat: "Heartbeat") -> _Result:
    """The result of a future."""
    while True:
        heartbeat.check()
        if not wait([future], LOOK_SECONDS).not_done:
            return future.result()


def kill_workers(pool: Executor) -> None:
    """End the processes of a pool whose results are no longer wanted; the pool is of no use after it.

    A pool of threads only starts no further task.
    """
    processes, results = list(_processes(pool).values()), getattr(pool, "_result_queue", None)
    manager: threading.Thread | None = getattr(pool, "_executor_manager_thread", None)
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.kill()
    # A killed worker may leave half a result, whose rest the pool awaits as long as a writer is open.
    if results is not None:
        results._writer.close()
    if manager is not None:
        manager.join(MAX_LOST_SECONDS)  # Python, when it ends, writes into a pipe that the manager may just have closed


def _processes(pool: Executor) -> dict[int, Any]:
    """The processes of a pool by number; none of a pool of threads."""
    return dict(getattr(pool, "_processes", None) or {})


class Heartbeat:
    """Finds processes that have work and do nothing: stopped by somebody, or waiting for a file that never comes.

    processes: their numbers, or a pool; without /proc nothing is found
    """

    def __init__(self, processes: Executor | Collection[int]) -> None:
        self._processes, self._has_proc = processes, Path("/proc/self/stat").exists()
        self._seen, self._idle, self._lost, self._looked = dict[int, int | None](), 0.0, 0.0, time.monotonic()

    def check(self) -> None:
        """To be called while waiting for them. Raises ResourceError after 10 minutes in which none had any time of a CPU,
        and what `signals.check` raises.

        One that has ended for MAX_LOST_SECONDS is a ResourceError too: a pool does not see it if it left half a result.
        """
        signals.check()
        now = time.monotonic()
        passed = min(now - self._looked, 2 * LOOK_SECONDS)  # more if this process was stopped, and its children with it
        numbers = _processes(self._processes) if isinstance(self._processes, Executor) else self._processes
        seen = {number: _cpu_ticks(number) for number in numbers} if self._has_proc else {}
        self._idle = self._idle + passed if seen and seen == self._seen else 0.0
        self._lost = self._lost + passed if None in seen.values() else 0.0
        self._seen, self._looked = seen, now
        if self._lost > MAX_LOST_SECONDS:
            raise ResourceError(LOST_WORKER_MESSAGE)
        if self._idle > MAX_IDLE_SECONDS:
            named = ", ".join(map(str, seen))
            raise ResourceError(
                f"processes with work have done nothing for {MAX_IDLE_SECONDS / 60:g} minutes: {named} (were they stopped?)"
            )


def _cpu_ticks(process: int) -> int | None:
    """The time of CPUs that a process has had; None when it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] == b"Z" else int(fields[11]) + int(fields[12])  # of the user and of the system


_task: Callable[[Any], Any] | None = None  # of a worker process


def become_worker(task: Callable[[Any], Any], plugins: Sequence[str] = ()) -> None:
    """Make a process a worker: it leaves signals to its parent, and ends with it or, by SIGTERM, when another was lost.

    plugins: to be loaded, as the parent has
    """
    global _task
    _task = task
    signal.set_wakeup_fd(-1)  # of a parent that was forked
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
    signal_at_end_of_parent(signal.SIGCONT)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for plugin in plugins:
        registry.load_plugin(plugin)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def run_task(item: Any) -> Any:
    """The result of the task for an item, in a worker process."""
    assert _task is not None
    return _task(item)
