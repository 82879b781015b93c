"""One disturbed command: it runs in a fork of this process, which has `nmt` and torch loaded, with the injector armed.

`run.py` preloads `injector.c` into this process.
"""

import contextlib
import ctypes
import errno
import importlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import phases
from disk import Disk

from nmt.cli.main import main
from nmt.errors import UserError
from nmt.files import TEMPORARY_ENDING

KILL: Final = -1  # as in injector.c
NEVER: Final = -1
LIMIT: Final = 60.0  # seconds that a command may take
ALLOWED: Final = {0, 4, 5, 128 + signal.SIGKILL}  # exit statuses of a disturbed command


@dataclass(frozen=True)
class Fault:
    """What happens to operations on files.

    error: what they fail with, or KILL
    lasting: all operations from the first on fail, else one
    only_room: only those that need room on the disk
    power: the disk loses what was not yet written to it, and the files are on a disk of their own
    """

    name: str
    error: int
    lasting: bool = False
    only_room: bool = False
    power: bool = False


FAULTS: Final = (
    Fault("EIO", errno.EIO),
    Fault("ESTALE", errno.ESTALE),
    Fault("ENOSPC once", errno.ENOSPC, only_room=True),
    Fault("ENOSPC from then on", errno.ENOSPC, lasting=True, only_room=True),
    Fault("kill -9", KILL),
    Fault("power loss", KILL, power=True),
)


class Operation(NamedTuple):
    """An operation on a file, as the injector reports it. needs_room: whether it may need room on the disk"""

    name: str
    path: str
    needs_room: bool


@dataclass(frozen=True)
class Ended:
    """How a command ended. code: 128 + n for signal n, None after LIMIT; modules: that it had loaded, if it was not killed"""

    code: int | None
    errors: str
    operations: list[Operation]
    modules: list[str]


def run(folder: Path, phase: phases.Phase, fault: Fault = FAULTS[0], at: int = NEVER) -> Ended:
    """Run a command of nmt in `folder`. Operations on files below it are counted; number `at` fails, or from it on."""
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as journal, tempfile.TemporaryFile() as modules:
        files = (errors, journal, modules)
        if (process := os.fork()) == 0:
            _run_child(folder, [*phase.arguments.split(), "--quiet"], fault, at, *(file.fileno() for file in files))
        code = _wait(process)
        texts = []
        for file in files:
            file.seek(0)
            texts.append(file.read().decode(errors="surrogateescape"))
    rows = [line.split("\t") for line in texts[1].split("\n")[:-1]]
    return Ended(
        code, texts[0], [Operation(name, path, needs_room == "1") for name, path, needs_room in rows], texts[2].split()
    )


def load(modules: list[str]) -> None:
    """Import modules here, so that a command does not have to in its fork: that takes seconds of each trial."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _run_child(
    folder: Path, arguments: list[str], fault: Fault, at: int, errors: int, journal: int, modules: int
) -> None:
    """Never returns: this is the forked process."""
    code = 1
    try:
        os.chdir(folder)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, handle in enumerate((nothing, nothing, errors)):
            os.dup2(handle, number)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        arm = ctypes.CDLL(None).arm
        arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_int]
        last = sys.maxsize if fault.lasting and at != NEVER else at
        arm(os.fsencode(folder), at, last, fault.error, fault.only_room, journal)
        main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stderr.flush()
        os.write(modules, "\n".join(name for name in sys.modules if name != "__main__").encode())
        os._exit(code)


def _wait(process: int) -> int | None:
    """The exit status of a child; None if it had to be killed after LIMIT."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def disturb(
    phase: phases.Phase, start: Path, work: Path, wanted: object, fault: Fault, at: int
) -> tuple[int | None, list[str]]:
    """Disturb operation `at` of a command, then run it again undisturbed.

    start: the folder that it starts with, which is copied to `work`; wanted: the content of its output afterwards
    returns: the exit status of the disturbed one, and what was wrong
    """
    with copied(start, work, fault.power) as disk:
        before = contents(work, *phase.inputs)
        first = run(work, phase, fault, at)
        if disk:
            disk.lose_power()
        return first.code, faults_of(phase, work, wanted, before, first, at)


@contextlib.contextmanager
def copied(start: Path, work: Path, on_disk: bool) -> Iterator[Disk | None]:
    """A copy of `start` at `work`, on a disk of its own if wanted."""
    shutil.rmtree(work, ignore_errors=True)
    disk = Disk(work) if on_disk else None
    try:
        shutil.copytree(start, work, symlinks=True, dirs_exist_ok=True)
        if disk:
            disk.sync()
        yield disk
    finally:
        if disk:
            disk.unmount()


def faults_of(phase: phases.Phase, work: Path, wanted: object, before: object, first: Ended, at: int) -> list[str]:
    """What is wrong after a command whose operation `at` was disturbed, and after the same one, undisturbed, that follows."""
    wrong = []
    if first.code not in ALLOWED:
        wrong.append("does not end" if first.code is None else f"exit code {first.code}: {first.errors.strip()}")
    if first.code in (4, 5) and not names_file_of(first.operations[at], first.errors, work):
        wrong.append(f"names another file or none: {first.errors.strip()}")
    made = contents(work, phase.output)
    if first.code == 0 and made != wanted:
        wrong.append("exit code 0, and the result is another")
    if first.code == 0:
        wrong += leftovers(work, first.errors)
    if made != wanted:
        second = run(work, phase)
        if second.code != 0:
            wrong.append(f"the next command ends with {second.code}: {second.errors.strip()}")
        elif contents(work, phase.output) != wanted:
            wrong.append("the next command has another result")
        wrong += leftovers(work)
    if contents(work, *phase.inputs) != before:
        wrong.append("an input has changed")
    return wrong


def leftovers(work: Path, errors: str = "") -> list[str]:
    """A line with the temporaries in a folder, but for those of what could not be removed, as a warning in `errors` says."""
    names = [path.name for path in work.rglob("*" + TEMPORARY_ENDING)]
    names = [name for name in names if f"/{becomes(name)} cannot be removed" not in errors]
    return [f"left over: {', '.join(names)}"] if names else []


def names_file_of(operation: Operation, errors: str, work: Path) -> bool:
    """Whether the last line starts with the file or artefact of the failed operation: `nmt: error: NAME cannot be written: ...`.

    An operation on the folder of all files, as syncing it, may name any of them.
    """
    name = re.split(r": | cannot be ", errors.strip().split("\n")[-1].removeprefix("nmt: error: "))[0]
    return owner(operation.path, work) in ("", owner(name, work))


def owner(path: str, work: Path) -> str:
    """The name in `work` of the file or folder that a path belongs to; a temporary belongs to what it becomes."""
    below = Path(os.path.relpath(path, work) if path.startswith("/") else path).parts
    return becomes(below[0]) if below else ""


def becomes(name: str) -> str:
    """The name of the file or folder that a temporary becomes, or was."""
    return re.sub(rf"^\.(.+?)(\.\d+-[0-9a-f]+|\.replaced|\.removed)?{re.escape(TEMPORARY_ENDING)}$", r"\1", name)


def contents(folder: Path, *names: str) -> list[object]:
    """What is compared of files and folders; the error of a damaged one."""
    found: list[object] = []
    for name in names:
        try:
            found.append(phases.content(folder / name))
        except UserError as error:
            found.append(f"damaged: {error}")
    return found
