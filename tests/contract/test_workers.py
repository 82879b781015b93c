"""Workers give their results in the order of the work, whatever their number, and end at once when the work shall stop."""

import os
import signal
import threading
import time

import pytest

from nmt.data.workers import LOOK_SECONDS, in_order
from nmt.errors import Interrupted, ResourceError
from nmt.signals import Signals


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_come_in_the_order_of_the_items(workers):
    items = list(range(-20, 5))
    assert list(in_order(abs, items, workers, Signals())) == [abs(item) for item in items]


@pytest.mark.parametrize("items", [1, 2, 9])
def test_a_signal_ends_workers_in_the_middle_of_their_work(items):
    with Signals() as signals:
        threading.Timer(2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        started = time.monotonic()
        with pytest.raises(Interrupted) as caught:
            list(in_order(time.sleep, [60] * items, 2, signals))
    assert caught.value.signal_number == signal.SIGTERM
    assert time.monotonic() - started < 2 + 10 * LOOK_SECONDS


def test_an_error_of_the_task_arises_here_and_ends_the_other_workers():
    started = time.monotonic()
    with pytest.raises(TypeError):
        list(in_order(time.sleep, ["x", 60], 2, Signals()))
    assert time.monotonic() - started < 30


def test_a_lost_worker_is_told():
    with pytest.raises(ResourceError, match="a worker process was lost"):
        list(in_order(os._exit, [3, 3], 2, Signals()))


def test_closing_the_results_ends_the_workers():
    started = time.monotonic()
    results = in_order(time.sleep, [0, 60, 60], 2, Signals())
    next(results)
    results.close()
    assert time.monotonic() - started < 30
