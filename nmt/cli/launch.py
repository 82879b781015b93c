"""A command in several processes on this machine, started by torchrun's own launcher."""

import logging
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from nmt.device import choose_device
from nmt.errors import ResourceError, UserError
from nmt.signals import STOP_SIGNALS

_KNOWS_SIGNALS = (
    "signals_to_handle" in signature(LaunchConfig).parameters
)  # not so in the oldest torch that is supported
OURS = range(1, 8)  # exit codes with which a rank has told its error already (docs/contract.md, rule 1)


def launch(devices: int, arguments: Sequence[str], after: str) -> int:
    """Run `nmt ARGUMENTS` in as many processes; returns the exit code. This process does nothing else any more.

    after: what to do when a rank is lost, for its message

    Nothing listens outside the loopback address: the launcher meets in a file, and its own store, which would, is not made.
    Raises ResourceError naming the rank when one is lost.
    """
    logging.disable(logging.ERROR)  # what torchrun says is said below, in one line
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    with tempfile.TemporaryDirectory(prefix="nmt-ranks-") as folder:
        try:
            elastic_launch(_config(devices, Path(folder)), sys.executable)("-m", "nmt", *arguments)
            return 0
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            if failure.exitcode in OURS or failure.exitcode > 128:
                return int(failure.exitcode)
            told = f"rank {rank} (process {failure.pid}) ended by signal {-failure.exitcode}, and all ranks with it"
            raise ResourceError(f"{told} ({after})") from None
        except SignalException as received:
            return 128 + int(received.sigval)


def flags_of_each(devices: int, device: str, threads: int | None) -> list[str]:
    """Flags that each of several ranks gets, `--threads` among them. Raises UserError when there are not as many devices."""
    found = choose_device(device)
    if found.type == "cuda":
        if ":" in device or devices > torch.cuda.device_count():
            why = f"torch sees {torch.cuda.device_count()} of them here, and each rank takes its own"
            raise UserError(f"--devices {devices} with --device {device}: {why}")
        return []
    return [] if threads is not None else [f"--threads={max(1, torch.get_num_threads() // devices)}"]


def _config(devices: int, folder: Path) -> LaunchConfig:
    """One machine, no second try, every signal that asks to stop passed on to the ranks."""
    handled = [number.name for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    newer: Any = {"signals_to_handle": ",".join(handled)} if _KNOWS_SIGNALS else {}
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=devices,
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint=str(folder / "meeting"),
        rdzv_configs={"store_type": "file"},
        max_restarts=0,
        local_addr="127.0.0.1",
        logs_specs=DefaultLogsSpecs(log_dir=str(folder)),
        **newer,
    )
