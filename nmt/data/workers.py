"""Distributes work over processes. Results come in the order of the items, so the number of processes does not affect them."""

import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from nmt import registry, signals
from nmt.errors import ResourceError
from nmt.signals import STOP_SIGNALS, signal_at_end_of_parent

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

WAITING_PER_WORKER: Final = 3
CHECK_SECONDS: Final = 0.2  # time between checks for a request to stop
MAX_IDLE_SECONDS: Final = 600.0  # idle time after which processes with work count as stuck
MAX_STOPPED_SECONDS: Final = 30.0  # time for a process that was stopped (SIGSTOP) to be continued
STOPPED: Final = -1  # stands for the CPU time of a stopped process
MAX_LOST_SECONDS: Final = 5.0  # time for a pool or parent to notice by itself that a process has ended
LOST_WORKER_MESSAGE: Final = "a worker process died, perhaps because memory ran out (use fewer --workers or --replicas)"


def in_order(task: Callable[[_Item], _Result], items: Iterable[_Item], workers: int) -> Generator[_Result, None, None]:
    """Yield task(item) for each item, in order. With one worker, everything runs in this process.

    task: picklable; sent to each worker once
    Raises Interrupted after a stop signal, ResourceError if a worker dies, and the errors of the task. After an error, or
    when the generator is closed, workers end immediately.
    """
    if workers == 1:
        for item in items:
            signals.check()
            yield task(item)
        return
    waiting: deque[Future[Any]] = deque()
    with tempfile.NamedTemporaryFile() as file:  # a pipe may be too small, and block if the new worker is stopped
        pickle.dump(task, file)
        file.flush()
        start = partial(_loaded, file.name, registry.loaded_plugins())
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), become_worker, (start,))
        heartbeat = Heartbeat(pool)
        try:
            for item in items:
                waiting.append(pool.submit(run_task, item))
                while len(waiting) >= WAITING_PER_WORKER * workers:
                    yield wait_for_result(waiting.popleft(), heartbeat)
            while waiting:
                yield wait_for_result(waiting.popleft(), heartbeat)
        except BrokenProcessPool:
            signals.check()  # a signal may have killed the worker
            raise ResourceError(LOST_WORKER_MESSAGE) from None
        finally:
            kill_workers(pool)  # not asked to end, because a stopped one would never do so
            pool.shutdown(cancel_futures=True)


def wait_for_result(future: "Future[_Result]", heartbeat: "Heartbeat") -> _Result:
    """Wait for the result of a future, checking for signals."""
    while True:
        heartbeat.check()
        if not wait([future], CHECK_SECONDS).not_done:
            return future.result()


def kill_workers(pool: Executor) -> None:
    """Kill the processes of a pool if its results are no longer wanted. The pool cannot be used afterwards.

    A thread pool only stops starting tasks.
    """
    processes, results = list(_processes(pool).values()), getattr(pool, "_result_queue", None)
    manager: threading.Thread | None = getattr(pool, "_executor_manager_thread", None)
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.kill()
    # A killed worker may leave half a result, and the pool waits for the rest as long as a writer is open.
    if results is not None:
        results._writer.close()
    if manager is not None:
        manager.join(MAX_LOST_SECONDS)  # at exit, Python writes to a pipe that the manager might be closing


def _processes(pool: Executor) -> dict[int, Any]:
    """The processes of a pool by id; a thread pool has none."""
    return dict(getattr(pool, "_processes", None) or {})


class Heartbeat:
    """Detects processes that have work but do nothing, because they were stopped or wait for a file that never comes.

    processes: process ids, or a pool; without /proc, nothing is detected
    """

    def __init__(self, processes: Executor | Collection[int]) -> None:
        self._processes, self._has_proc = processes, Path("/proc/self/stat").exists()
        self._seen, self._looked = dict[int, int | None](), time.monotonic()
        self._idle = self._lost = self._stopped = 0.0

    def check(self) -> None:
        """Call while waiting. Raises ResourceError if no process used the CPU for 10 minutes, and Interrupted after a signal.

        Also raises ResourceError if a process ended MAX_LOST_SECONDS ago: a pool would wait for the rest of a half-sent result;
        and if one was stopped MAX_STOPPED_SECONDS ago.
        """
        signals.check()
        now = time.monotonic()
        passed = min(now - self._looked, 2 * CHECK_SECONDS)  # a longer gap means that this process was stopped
        numbers = _processes(self._processes) if isinstance(self._processes, Executor) else self._processes
        seen = {number: _cpu_ticks(number) for number in numbers} if self._has_proc else {}
        self._idle = self._idle + passed if seen and seen == self._seen else 0.0
        self._lost = self._lost + passed if None in seen.values() else 0.0
        self._stopped = self._stopped + passed if STOPPED in seen.values() else 0.0
        self._seen, self._looked = seen, now
        if self._lost > MAX_LOST_SECONDS:
            raise ResourceError(LOST_WORKER_MESSAGE)
        if self._stopped > MAX_STOPPED_SECONDS:
            named = ", ".join(str(number) for number, ticks in seen.items() if ticks == STOPPED)
            raise ResourceError(f"stopped for {MAX_STOPPED_SECONDS:g} s: processes {named} (SIGCONT continues them)")
        if self._idle > MAX_IDLE_SECONDS:
            named = ", ".join(map(str, seen))
            minutes = f"{MAX_IDLE_SECONDS / 60:g} minutes"
            raise ResourceError(f"no progress for {minutes} in processes {named} (check whether they were stopped)")


def _cpu_ticks(process: int) -> int | None:
    """The CPU time that a process has used; None if it has ended, STOPPED if it was stopped."""
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] in (b"Z", b"T"):
        return None if fields[0] == b"Z" else STOPPED
    return int(fields[11]) + int(fields[12])  # user and system time


_task: Callable[[Any], Any] | None = None  # set in worker processes


def become_worker(load: Callable[[], Callable[[Any], Any]]) -> None:
    """Turn this process into a worker, which exits with its parent, or on SIGTERM if another worker dies.

    It leaves other signals to its parent. load: returns the task
    """
    global _task
    signal.set_wakeup_fd(-1)  # a forked process inherits its parent's descriptor
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
    signal_at_end_of_parent(signal.SIGCONT)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _task = load()


def _loaded(file: str, plugins: Sequence[str]) -> Callable[[Any], Any]:
    """Load the plug-ins of the parent, and the task that it has written to a file."""
    for plugin in plugins:
        registry.load_plugin(plugin)
    return pickle.loads(Path(file).read_bytes())  # type: ignore[no-any-return]


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def run_task(item: Any) -> Any:
    """Run the task for an item, in a worker process."""
    assert _task is not None
    return _task(item)
