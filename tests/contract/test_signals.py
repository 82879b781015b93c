"""Signals: recorded for work that looks for them, and the end of work that does not."""

import os
import signal
import subprocess
import sys

import pytest

BEGIN = """
import os, signal, sys, time
from functools import partial
from nmt.signals import Signals
Signals = partial(Signals, seconds=0.5)
"""
SEND = "os.kill(os.getpid(), signal.SIGTERM)"


def ended(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BEGIN + program], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "work", ["time.sleep(50)", "import ctypes; ctypes.CDLL(None).pause(); ctypes.CDLL(None).sleep(50)"]
)
def test_work_that_does_not_check_for_signals_is_killed(work):
    sender = f"import threading; threading.Timer(0.2, lambda: {SEND}).start()"
    done = ended(f"{sender}\nwith Signals():\n    {work}\n")
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stderr == "nmt: error: ended by SIGTERM: the work did not stop within 0 s\n"


def test_work_that_checks_for_signals_ends_by_itself():
    done = ended(f"with Signals() as signals:\n    {SEND}\n    signals.received\n    time.sleep(1.5)\nprint('done')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    done = ended(f"with Signals() as signals:\n    {SEND}\ntime.sleep(1.5)\nprint('done')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_first_update_that_takes_too_long_after_a_signal_is_killed():
    """No rate is known yet, so the update continues; the process is still watched."""
    update = """from nmt.dist import World
from nmt.train.update import SignalWatch
with Signals() as signals:
    watch = SignalWatch(World())
    SEND
    watch.begin()
    watch.check(0, 1000, together=True, last=False)
    print('begun', flush=True)
    time.sleep(50)
"""
    done = ended(update.replace("SEND", SEND))
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "begun\n")


def test_a_signal_after_the_first_is_quiet():
    work = f"{SEND}\n    signals.received\n    time.sleep(1)\n    {SEND}\n    time.sleep(0.2)"
    done = ended(f"with Signals() as signals:\n    {work}\nprint('done')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_signal_that_is_ignored_stays_ignored():
    """As nohup has SIGHUP, so that a training continues when its terminal is closed."""
    send = "os.kill(os.getpid(), signal.SIGHUP)"
    work = f"signal.signal(signal.SIGHUP, signal.SIG_IGN)\nwith Signals() as signals:\n    {send}\n    signals.check()"
    done = ended(f"{work}\n{send}\nprint('done')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_the_first_of_several_signals_is_the_reported_reason():
    both = f"{SEND}\n    os.kill(os.getpid(), signal.SIGHUP)"
    done = ended(f"with Signals() as signals:\n    {both}\n    print(signals.received)")
    assert done.stdout == f"{signal.SIGTERM:d}\n", done.stderr


def test_a_protected_block_completes_before_the_signal_takes_effect():
    work = "with signals.held:\n        time.sleep(1.5)\n        print('saved', flush=True)\n    time.sleep(50)"
    done = ended(f"with Signals() as signals:\n    {SEND}\n    {work}\n")
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "saved\n")


def test_a_signal_to_a_forked_worker_does_not_end_its_parent():
    program = """
import concurrent.futures, multiprocessing
from nmt.data.workers import become_worker, run_task
with Signals() as signals:
    fork = multiprocessing.get_context("fork")
    pool = concurrent.futures.ProcessPoolExecutor(1, fork, become_worker, (os.getpid,))
    worker = pool.submit(os.getpid).result()
    os.kill(worker, signal.SIGHUP)
    time.sleep(1.5)
    pool.shutdown()
print("done")
"""
    done = ended(program)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_rank_does_not_start_after_its_launcher_has_ended(tmp_path):
    environment = {**os.environ, "TORCHELASTIC_RUN_ID": "x", "NMT_LAUNCHER": "1" if os.getpid() != 1 else "2"}
    done = subprocess.run(
        [sys.executable, "-m", "nmt", "list", "model"], env=environment, capture_output=True, timeout=60
    )
    assert done.returncode == 128 + signal.SIGTERM and not done.stdout


@pytest.mark.parametrize("module", ["numpy", "numpy.linalg", "torch.functional"])
def test_an_interrupt_while_torch_is_imported_ends_the_command(module):
    program = """
import importlib.abc, os, signal, sys
class Interrupts(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupts())
from nmt.cli.main import main
main(["score", "--model", "none", "--source", "none", "--target", "none"])
"""
    done = subprocess.run([sys.executable, "-c", program, module], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")
