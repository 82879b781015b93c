"""Commands of nmt as forks of a process that has imported it: the imports take longer than the work of most tests.

python forks.py FOLDER    starts a fork for each `ask_fork.py FOLDER/socket WORDS...`, until its stdin is closed
FOLDER/nmt WORDS...       asks for one

Streams, folder, environment and exit status are those of `nmt WORDS...`, and so are TERM, INT, HUP, USR1 and KILL. The ranks
that a command starts are forks of it. What Python and torch read when they start is that of the process that forks.
"""

import atexit
import contextlib
import ctypes
import functools
import importlib
import json
import os
import pkgutil
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

OTHER_MODULES: Final = ("torch._dynamo", "sacrebleu", "sacremoses")  # that commands import when they need them
MAX_REQUEST_BYTES: Final = 1 << 20
ASKED_BY: Final = "ASKED_BY"  # variable with the process number of `ask_fork.py`
SET_NAME: Final = 15  # PR_SET_NAME of linux/prctl.h


@functools.cache
def forked_nmt(python: str = sys.executable) -> str:
    """The path of a program that runs `nmt` as a fork. Its server starts with the first call, and ends with this process.

    python: the interpreter, which decides the installation of nmt
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    if python != sys.executable:
        environment.pop("PYTHONPATH", None)
    folder = tempfile.mkdtemp(prefix="nmt-forks-")
    server = subprocess.Popen(
        [python, __file__, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # Ctrl-C reaches the commands once, by `ask_fork.py`
    )
    assert server.stdin and server.stdout
    assert server.stdout.readline() == b"\n"
    atexit.register(server.communicate)
    return f"{folder}/nmt"


class Fork:
    """A process that runs a function and ends with the status that it returns; with the methods of Popen that nmt calls."""

    def __init__(self, work: Callable[[], int]) -> None:
        self.returncode: int | None = None
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            _end(work)

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        return self._wait(0) or 0

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def _end(work: Callable[[], int]) -> NoReturn:
    """Run a function in a fork, which never returns to what its parent was doing."""
    code = 1
    try:
        code = work()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(ValueError, OSError):
                stream.flush()
        os._exit(code)


def run_command(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command in this process, a fork, as if it had just been started."""
    from nmt.cli.main import main

    os.environ.clear()
    os.environ.update(environment)
    added = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [place for place in added if place and place not in sys.path]
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    forget_plugins()
    main([*words])
    return 0


def forget_plugins() -> None:
    """Undo `--plugin`: remove all parts that are not of nmt."""
    from nmt import registry

    shelf = registry._shelf
    outside = [
        entry for entry in (*shelf.parts.values(), *shelf.presets.values()) if not entry.place.startswith("nmt.")
    ]
    for entry in outside:
        sys.modules.pop(entry.place, None)
    shelf.plugins, shelf.broken, shelf.entry_points_loaded = {}, {}, False
    shelf.parts = {key: entry for key, entry in shelf.parts.items() if entry not in outside}
    shelf.presets = {name: preset for name, preset in shelf.presets.items() if preset not in outside}


def close_all_but(kept: Sequence[int]) -> None:
    """Close the descriptors of this process but stdin, stdout, stderr and some others."""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):  # that of the listing
                os.close(number)


def start_rank(
    command: Sequence[str], env: Mapping[str, str], pass_fds: Sequence[int], start_new_session: bool
) -> Fork:
    """Popen of nmt.cli.launch: `python -m nmt WORDS...` as a fork of this process."""

    def rank() -> int:
        assert start_new_session
        os.setsid()
        close_all_but(pass_fds)
        ctypes.CDLL(None).prctl(SET_NAME, f"RANK={env['RANK']}@{env[ASKED_BY]}".encode())
        return run_command(command[3:], env)

    return Fork(rank)


def serve(folder: Path) -> None:
    """Start a fork for each request; see `ask_fork.py`."""
    import nmt

    names = [module.name for module in pkgutil.walk_packages(nmt.__path__, "nmt.")]
    names = [name for name in names if "__main__" not in name and ".skeletons" not in name]  # skeletons are only texts
    for name in (*names, *OTHER_MODULES):
        importlib.import_module(name)
    sys.modules["nmt.cli.launch"].Popen = start_rank  # type: ignore[attr-defined]
    program, client = folder / "nmt", Path(__file__).with_name("ask_fork.py")
    words = shlex.join([sys.executable, "-S", "-E", str(client), str(folder / "socket")])
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        print(flush=True)
        while 0 not in (ready := select.select([listener, 0], [], [])[0]):
            assert ready
            connection, _ = listener.accept()
            with connection:
                Fork(functools.partial(_answer, connection))
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _answer(connection: socket.socket) -> int:
    """Run the command of a request. Its signals are passed on, and it is killed when `ask_fork.py` has ended."""
    content, streams, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 3)
    request = json.loads(content)

    def command() -> int:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        close_all_but([])
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            setattr(sys, name, open(number, "w" if number else "r", 1, closefd=False))  # noqa: SIM115
        os.chdir(request["folder"])
        return run_command(request["words"], {**request["environment"], ASKED_BY: str(request["process"])})

    started = Fork(command)
    for stream in streams:
        os.close(stream)
    end = os.pidfd_open(started.pid)
    while end not in select.select([connection, end], [], [])[0]:
        number = connection.recv(1)
        started.send_signal(number[0] if number else signal.SIGKILL)
        if not number:
            started.wait()
            return 0
    connection.sendall(str(started.wait()).encode())
    while connection.recv(1):  # signals that came too late, until `ask_fork.py` has the code
        pass
    return 0


if __name__ == "__main__":
    try:
        serve(Path(sys.argv[1]))
    finally:
        shutil.rmtree(sys.argv[1])
