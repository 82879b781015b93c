"""Workers give their results in the order of the work, whatever their number, and end at once when the work is to stop."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures.process import _ExecutorManagerThread
from pathlib import Path

import pytest
from ranks import children_of

from nmt.data import workers
from nmt.data.learn import SubwordSettings, learn_in_subprocess
from nmt.data.workers import in_order
from nmt.errors import Interrupted, ResourceError
from nmt.signals import Signals


@pytest.mark.parametrize("number", [1, 2, 3])
def test_results_come_in_the_order_of_the_items(number):
    items = list(range(-20, 5))
    assert list(in_order(abs, items, number)) == [abs(item) for item in items]


@pytest.mark.parametrize("items", [1, 2, 9])
def test_a_signal_ends_workers_in_the_middle_of_their_work(items):
    with Signals():
        threading.Timer(2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        started = time.monotonic()
        with pytest.raises(Interrupted) as caught:
            list(in_order(time.sleep, [60] * items, 2))
    assert caught.value.signal_number == signal.SIGTERM
    assert time.monotonic() - started < 60
    # Python, when it ends, writes into a pipe that this thread closes: the two must not meet
    assert not any(isinstance(thread, _ExecutorManagerThread) for thread in threading.enumerate())


def test_an_error_in_a_task_is_raised_in_the_parent_and_ends_the_other_workers():
    started = time.monotonic()
    with pytest.raises(TypeError):
        list(in_order(time.sleep, ["x", 60], 2))
    assert time.monotonic() - started < 60


def test_a_lost_worker_is_reported():
    with pytest.raises(ResourceError, match="a worker process died"):
        list(in_order(os._exit, [3, 3], 2))


def wait_until(holds) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stop_itself(_item):
    os.kill(os.getpid(), signal.SIGSTOP)


def test_stopped_workers_are_reported_and_ended(monkeypatch):
    monkeypatch.setattr(workers, "MAX_STOPPED_SECONDS", 1.0)
    with pytest.raises(ResourceError, match=r"processes \d+(, \d+)? "):
        list(in_order(stop_itself, [1, 2, 3], 2))
    wait_until(lambda: not multiprocessing.active_children())


def wait_for_nothing(folder: Path):
    (folder / "pipe").open("rb")


def test_workers_that_do_nothing_are_reported_and_ended(monkeypatch, tmp_path):
    monkeypatch.setattr(workers, "MAX_IDLE_SECONDS", 1.0)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ResourceError, match=r"no progress for .* minutes in processes \d+, \d+ "):
        list(in_order(wait_for_nothing, [tmp_path] * 3, 2))
    wait_until(lambda: not multiprocessing.active_children())


STOPS_AT_START = """
import os, signal, sys
if any("spawn_main" in word for word in sys.orig_argv):
    for number in range(int(os.environ["NUM_STOPPED"])):
        try:
            os.close(os.open(f"{os.environ['STOPPED']}-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        os.kill(os.getpid(), signal.SIGSTOP)
        break
"""


class Large:
    """A task that does not fit into a pipe."""

    def __init__(self) -> None:
        self.content = bytes(1_000_000)

    def __call__(self, item: int) -> int:
        return item + len(self.content)


@pytest.mark.parametrize(("stopped", "seconds"), [(1, 60.0), (2, 1.0)])
def test_workers_that_are_stopped_while_they_start_never_block_the_parent(stopped, seconds, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(STOPS_AT_START)
    program = (
        "from test_workers import *\n"
        f"workers.MAX_STOPPED_SECONDS = {seconds}\n"
        "print(sum(in_order(Large(), [1] * 9, 2)))"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parent), *sys.path])
    variables = {"PYTHONPATH": path, "NUM_STOPPED": str(stopped), "STOPPED": str(tmp_path / "stopped")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120)
    assert len(list(tmp_path.glob("stopped-*"))) == stopped
    if stopped == 1:
        assert (done.returncode, done.stdout) == (0, "9000009\n")
    else:
        assert done.returncode == 1 and "ResourceError: stopped for" in done.stderr


def test_a_signal_ends_stopped_workers():
    with Signals():
        threading.Timer(4, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(Interrupted):
            list(in_order(stop_itself, [1, 2, 3], 2))
    wait_until(lambda: not multiprocessing.active_children())


def is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_stopped_workers_end_with_their_parent():
    program = "from test_workers import *; list(in_order(stop_itself, [1, 2], 2))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as process:
        wait_until(lambda: sum(map(is_stopped, children_of(process.pid))) == 2)
        stopped = [child for child in children_of(process.pid) if is_stopped(child)]
        process.kill()
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in stopped))


def leave_half_a_result(_item):
    def send(self, data):
        os.write(self.fileno(), bytes(data)[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    multiprocessing.connection.Connection._send = send
    return b"x" * 100_000


def test_a_worker_lost_while_sending_a_result_is_reported_and_its_pool_ends():
    threads = set(threading.enumerate())
    with pytest.raises(ResourceError, match="a worker process died"):
        list(in_order(leave_half_a_result, [1, 2, 3], 2))
    wait_until(lambda: not multiprocessing.active_children() and set(threading.enumerate()) <= threads)


def test_a_signal_ends_the_pool_of_a_worker_lost_while_sending_a_result():
    threads = set(threading.enumerate())
    with Signals():
        threading.Timer(3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(Interrupted):
            list(in_order(leave_half_a_result, [1, 2, 3], 2))
    wait_until(lambda: not multiprocessing.active_children() and set(threading.enumerate()) <= threads)


def test_a_stopped_learning_process_is_reported_and_ended(monkeypatch, tmp_path):
    monkeypatch.setattr(workers, "MAX_STOPPED_SECONDS", 1.0)
    before = set(children_of(os.getpid()))

    def learning() -> list[int]:  # once it runs: a parent waits for a child that has not started its program
        children = set(children_of(os.getpid())) - before
        return [child for child in children if b"_learn_from" in Path(f"/proc/{child}/cmdline").read_bytes()]

    def stop_child():
        wait_until(learning)
        os.kill(learning()[0], signal.SIGSTOP)

    threading.Thread(target=stop_child).start()
    with pytest.raises(ResourceError, match=r"stopped for 1 s: processes \d+ "):
        learn_in_subprocess([["aa bb"]], SubwordSettings("bpe", 20, 1.0, False), tmp_path, "text")
    assert not set(children_of(os.getpid())) - before


def test_closing_the_results_ends_the_workers():
    started = time.monotonic()
    results = in_order(time.sleep, [0, 60, 60], 2)
    next(results)
    results.close()
    assert time.monotonic() - started < 60
