"""Forked searches: what a fork inherits from its parent."""

import gc
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from nmt.translate.replicas import Replicas, are_processes


class Dropped:
    """An object in a reference cycle. The process that collects it reports that in a file."""

    def __init__(self, path: Path) -> None:
        self.path, self.itself = path, self

    def __del__(self) -> None:
        with self.path.open("a") as file:
            file.write(f"{os.getpid()}\n")


def collect(_item: int) -> int:
    gc.collect()
    return os.getpid()


@pytest.mark.skipif(not are_processes("cpu"), reason="replicas are threads here")
def test_a_fork_does_not_garbage_collect_its_parent_s_objects(tmp_path):
    path = tmp_path / "ended"
    gc.disable()
    try:
        Dropped(path)
        with_forks = Replicas(collect, 2, torch.device("cpu"), 1, lambda: None)
        forks = set(with_forks.in_order([1, 2, 3, 4]))
        assert os.getpid() not in forks and not path.exists()
    finally:
        gc.enable()
    gc.collect()
    assert path.read_text() == f"{os.getpid()}\n"


@pytest.mark.skipif(not are_processes("cpu"), reason="replicas are threads here")
def test_a_server_can_close_a_connection_while_its_forks_live():
    with_forks = Replicas(collect, 2, torch.device("cpu"), 1, lambda: None)
    ours, of_client = socket.socketpair()
    assert os.getpid() not in set(with_forks.in_order([1, 2, 3, 4]))
    ours.close()
    with of_client:
        of_client.settimeout(5)
        assert of_client.recv(1) == b""
    assert len(list(with_forks.in_order([1, 2, 3, 4]))) == 4


def test_concurrent_searches_prepare_the_model_once():
    prepared = []

    def prepare():
        prepared.append(threading.get_ident())
        time.sleep(0.2)  # in which the others ask too

    replicas = Replicas(collect, 2, torch.device("cpu"), 1, prepare)
    list(replicas.in_order([0]))
    searches = [threading.Thread(target=lambda: list(replicas.in_order([1]))) for _ in range(4)]
    for search in searches:
        search.start()
    for search in searches:
        search.join()
    assert len(prepared) == 1


@pytest.mark.skipif(not are_processes("cpu"), reason="replicas are threads here")
def test_concurrent_searches_share_one_pool():
    with_forks = Replicas(collect, 2, torch.device("cpu"), 1, lambda: None)
    start, pools = with_forks._start_pool, []
    both_wait = threading.Barrier(2, timeout=5)

    def start_slowly():
        pools.append(start())
        if len(pools) == 1:
            both_wait.wait()  # the other thread is about to ask for a pool
        return pools[-1]

    with_forks._start_pool = start_slowly
    results = [None, None]

    def search(number):
        if number:
            both_wait.wait()
        results[number] = set(with_forks.in_order([1, 2, 3, 4]))

    threads = [threading.Thread(target=search, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(pools) == 1 and all(results)


@pytest.mark.skipif(not are_processes("cpu"), reason="replicas are threads here")
def test_a_command_ends_although_a_replica_is_stopped():
    program = (
        "from test_replicas import *\n"
        "with_forks = Replicas(collect, 2, torch.device('cpu'), 1, lambda: None)\n"
        "import signal\n"
        "os.kill(list(with_forks.in_order([1, 2, 3, 4]))[0], signal.SIGSTOP)\n"
        "from nmt.cli.main import main\n"
        "main(['--version'])\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith(b"nmt ")
