"""Forked searches: what a fork has of its parent."""

import gc
import os
from pathlib import Path

import pytest
import torch

from nmt.translate.replicas import Replicas, are_processes


class Dropped:
    """An object in a cycle, whose end is told in a file by the process that collects it."""

    def __init__(self, path: Path) -> None:
        self.path, self.itself = path, self

    def __del__(self) -> None:
        with self.path.open("a") as file:
            file.write(f"{os.getpid()}\n")


def collect(_item: int) -> int:
    gc.collect()
    return os.getpid()


@pytest.mark.skipif(not are_processes("cpu"), reason="replicas are threads here")
def test_a_fork_does_not_collect_what_its_parent_dropped(tmp_path):
    path = tmp_path / "ended"
    gc.disable()
    try:
        Dropped(path)
        with_forks = Replicas(collect, 2, torch.device("cpu"), 1, lambda: None)
        forks = set(with_forks.in_order([1, 2, 3, 4], lambda: None))
        assert os.getpid() not in forks and not path.exists()
    finally:
        gc.enable()
    gc.collect()
    assert path.read_text() == f"{os.getpid()}\n"
