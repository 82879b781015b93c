"""Start a command as several ranks on this machine, with torchrun's environment variables."""

import math
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from subprocess import Popen
from typing import Final

import torch

from nmt import signals
from nmt.device import choose_device
from nmt.dist import LAUNCHER, LISTENER
from nmt.errors import ResourceError, UserError
from nmt.signals import POLL_SECONDS, STOP_SIGNALS

RESEND_SECONDS: Final = 25.0  # time between signals; enough for ranks that obey to end or to start saving
GRACE_SECONDS: Final = 10.0  # time for the other ranks to end after one has failed or the leader has ended
LOOPBACK: Final = "127.0.0.1"
OF_TORCHRUN: Final = "TORCHELASTIC_"  # prefix of variables from an outer launcher that started this one
REPORTED_CODES: Final = range(1, 8)  # exit statuses of a rank that has printed its error
STOPPED_CODES: Final = (0, *(128 + number for number in STOP_SIGNALS))


def launch(
    devices: int,
    device: str,
    threads: int | None,
    arguments: Sequence[str],
    after: str,
    variables: Mapping[str, str] | None = None,
) -> int:
    """Run `nmt ARGUMENTS` in `devices` processes, and return the exit status. This process only waits.

    device, threads: the values of the flags; without `--threads`, ranks on CPUs share the threads
    after: advice in the message about a lost rank
    variables: further environment variables for each rank

    Stop signals are passed on, even to suspended ranks. Nothing listens outside the loopback address.
    Raises ResourceError with the number of a lost rank, and UserError for more ranks than GPUs.
    """
    further = {**_variables_of_each(devices, device, threads), **(variables or {})}
    ranks: list[Popen[bytes]] = []
    with signals.Signals(seconds=None) as received:
        try:
            with socket.create_server((LOOPBACK, 0)) as listener:
                for rank in range(devices):
                    ranks.append(_start(rank, devices, arguments, listener, further))
            codes = _wait(ranks)
        finally:
            for process in ranks:
                process.kill()
                process.wait()
    return _exit_code(codes, [process.pid for process in ranks], received.received, after)


def _start(
    rank: int, devices: int, arguments: Sequence[str], listener: socket.socket, further: Mapping[str, str]
) -> "Popen[bytes]":
    """Start a rank. listener: the socket of the store, which the leader inherits; further: more environment variables"""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": devices, "LOCAL_WORLD_SIZE": devices}
    numbers |= {"MASTER_PORT": listener.getsockname()[1], LISTENER: listener.fileno(), LAUNCHER: os.getpid()}
    variables = {"MASTER_ADDR": LOOPBACK, **{name: str(number) for name, number in numbers.items()}}
    outer = {name: value for name, value in os.environ.items() if not name.startswith(OF_TORCHRUN)}
    environment = {"TORCH_CPP_LOG_LEVEL": "ERROR", **outer, **variables, **further}
    # Each rank has its own session; otherwise Ctrl-C would reach it both from the terminal and from the launcher.
    command = [sys.executable, "-m", "nmt", *arguments]
    return Popen(command, env=environment, pass_fds=[] if rank else [listener.fileno()], start_new_session=True)


def _wait(ranks: "Sequence[Popen[bytes]]") -> list[int]:
    """Wait for all ranks, and return their exit statuses: -SIGTERM for those that this function ended.

    If one fails, the others get SIGTERM. Some seconds after that, or after a rank is stopped or the leader ends, they get
    SIGKILL. The leader only gets SIGTERM, because it ends by itself in time unless it is writing a checkpoint.
    """
    deadline, send_at, is_terminated = math.inf, 0.0, False  # send_at: when to pass a signal on next
    ended, killed = set[int](), set[int]()  # ended: by SIGTERM, which ranks may handle; killed: by SIGKILL
    while None in (codes := [process.poll() for process in ranks]):
        now, running = time.monotonic(), {rank for rank, code in enumerate(codes) if code is None}
        if (number := signals.innermost().received) is not None and now > send_at:
            for process in ranks:
                process.send_signal(signal.SIGTERM if send_at else number)  # a library may have caught the first signal
                process.send_signal(signal.SIGCONT)  # a suspended process would never receive it
            send_at = now + RESEND_SECONDS
        early = {*codes} - {None, 0}
        has_failed = not early.issubset(STOPPED_CODES)
        if deadline == math.inf and (early or 0 not in running):
            deadline = now + GRACE_SECONDS
        if early and not is_terminated and (has_failed or now > deadline):
            is_terminated = True
            ended = running if has_failed and number is None else set()
            for process in ranks:
                process.terminate()
            ranks[0].send_signal(signal.SIGCONT)
        if now > deadline:
            killed |= running - {0}
            for rank in killed:
                ranks[rank].kill()
        time.sleep(POLL_SECONDS)
    ends = [process.wait() for process in ranks]
    ended = {rank for rank in ended if ends[rank] == 128 + signal.SIGTERM}
    return [-signal.SIGTERM if rank in killed | ended else code for rank, code in enumerate(ends)]


def _exit_code(codes: Sequence[int], pids: Sequence[int], received: int | None, after: str) -> int:
    """The exit status of a command, derived from those of its ranks. received: the signal that was passed on to them"""
    leader, *others = codes
    if leader == 0 and {*others} <= {-signal.SIGTERM, *STOPPED_CODES}:
        return 0
    if received is not None and {*codes} <= {-received, -signal.SIGTERM, ResourceError.code, *STOPPED_CODES}:
        return leader if leader > 0 else 128 + received  # a rank that has lost another one ends with 5
    rank = min(range(len(codes)), key=lambda rank: _distance_from_cause(codes[rank]))
    code = codes[rank]
    if code in REPORTED_CODES or code > 128:
        return code
    if -code in STOP_SIGNALS:  # the rank ended before it could handle signals
        return 128 - code
    how = f"by signal {-code}" if code < 0 else f"with exit status {code}"
    raise ResourceError(f"rank {rank} (process {pids[rank]}) ended {how}, which ended all ranks ({after})")


def _distance_from_cause(code: int) -> int:
    """How far an exit status is from the original failure: signals are closest, then errors, then lost connections.

    Ranks that the launcher itself ended by SIGTERM come after these, and successful ranks come last.
    """
    return {0: 4, -signal.SIGTERM: 3, ResourceError.code: 2}.get(code, 0 if code < 0 else 1)


def _variables_of_each(devices: int, device: str, threads: int | None) -> dict[str, str]:
    """The environment variables of each rank: its number of threads, which is not a setting of the run."""
    chosen = choose_device(device)
    if chosen.type == "cuda":
        if ":" in device or devices > torch.cuda.device_count():
            raise UserError(
                f"--devices {devices} with --device {device}: each rank needs its own GPU, and torch finds "
                f"{torch.cuda.device_count()} (use fewer --devices, or --device cpu)"
            )
        return {}
    return {} if threads is not None else {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // devices))}
