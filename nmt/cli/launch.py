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
from typing import Any, Final

import torch
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from nmt.device import choose_device
from nmt.dist import LAUNCHER
from nmt.errors import ResourceError, UserError
from nmt.signals import STOP_SIGNALS

HANDLES_SIGNALS: Final = "signals_to_handle" in signature(LaunchConfig).parameters  # not in the oldest supported torch
REPORTED_CODES: Final = range(1, 8)  # exit codes of a rank that has printed its error


def launch(devices: int, arguments: Sequence[str], after: str) -> int:
    """Run `nmt ARGUMENTS` in `devices` processes, and return the exit code. This process only waits.

    after: advice in the message about a lost rank

    Nothing listens outside the loopback address: the launcher meets in a file and makes no TCP store.
    Raises ResourceError with the number of a lost rank.
    """
    logging.disable(logging.ERROR)  # the messages below replace torchrun's
    os.environ[LAUNCHER] = str(os.getpid())
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # One machine, no restarts, and stop signals passed on to the ranks.
    handled = [number.name for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    newer: Any = {"signals_to_handle": ",".join(handled)} if HANDLES_SIGNALS else {}
    with tempfile.TemporaryDirectory(prefix="nmt-ranks-") as folder:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=devices,
            run_id=str(uuid.uuid4()),
            rdzv_backend="c10d",
            rdzv_endpoint=str(Path(folder) / "meeting"),
            rdzv_configs={"store_type": "file"},
            max_restarts=0,
            local_addr="127.0.0.1",
            logs_specs=DefaultLogsSpecs(log_dir=folder),
            **newer,
        )
        try:
            elastic_launch(config, sys.executable)("-m", "nmt", *arguments)
            return 0
        except ChildFailedError as error:
            rank, failure = min(error.failures.items(), key=lambda item: _distance_from_cause(item[1].exitcode))
            if failure.exitcode in REPORTED_CODES or failure.exitcode > 128:
                return int(failure.exitcode)
            lost = f"rank {rank} (process {failure.pid}) ended by signal {-failure.exitcode}, and all ranks with it"
            raise ResourceError(f"{lost} ({after})") from None
        except SignalException as received:
            return 128 + int(received.sigval)


def _distance_from_cause(code: int) -> int:
    """How far a rank's end is from what ended all, where several have ended: a signal, an error, a lost connection.

    The launcher itself ends the last ones by SIGTERM.
    """
    return 3 if code == -signal.SIGTERM else 0 if code < 0 else 2 if code == ResourceError.code else 1


def flags_of_each(devices: int, device: str, threads: int | None) -> list[str]:
    """Further flags of each rank, such as `--threads`. Raises UserError for more ranks than GPUs."""
    chosen = choose_device(device)
    if chosen.type == "cuda":
        if ":" in device or devices > torch.cuda.device_count():
            raise UserError(
                f"--devices {devices} with --device {device}: each rank needs a GPU of its own, and torch sees "
                f"{torch.cuda.device_count()} here (give fewer --devices, or --device cpu)"
            )
        return []
    return [] if threads is not None else [f"--threads={max(1, torch.get_num_threads() // devices)}"]
