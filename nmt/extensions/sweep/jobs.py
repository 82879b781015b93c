"""Runs commands of `nmt` in separate processes: several jobs in parallel, and the steps of each job one after another."""

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any, Final

import msgspec

from nmt import signals
from nmt.dist import LAUNCHER
from nmt.errors import ResourceError, expecting, quoted
from nmt.files import parse_json, read_bytes, to_json, write_file
from nmt.locks import LOCK, holder_of
from nmt.options import flag_of
from nmt.signals import POLL_SECONDS

LOG_FILE: Final = "commands.log"
STATE_FILE: Final = "sweep.json"
ERROR_START: Final = "nmt: error: "
MAX_LOG_TAIL_BYTES: Final = 10_000
LOCK_SECONDS: Final = 30.0  # time for the runs of a killed sweep to save and stop


@dataclass(frozen=True)
class Step:
    """A command of a job.

    arguments: arguments of the command line
    settings: TOML for --config; empty for none
    inputs: sha256 of the files that the command reads
    output: name of the file in the job's folder that stdout goes to; None for the log
    slot_options: names of the slot's options that the command takes
    """

    command: str
    arguments: Sequence[str]
    settings: str = ""
    inputs: Sequence[str] = ()
    output: str | None = None
    slot_options: Sequence[str] = ()

    @property
    def identity(self) -> list[str]:
        """All inputs that determine the result. A step is repeated if its identity has changed."""
        return [self.command, *self.arguments, self.settings, *self.inputs]


class Job:
    """Steps that run one after another in a folder. Steps that succeeded are recorded there, and are not repeated.

    error: why the last step failed; empty if it did not
    """

    def __init__(self, folder: Path, steps: Sequence[Step]) -> None:
        self.folder, self.steps, self.error = folder, steps, ""
        recorded = _recorded(folder / STATE_FILE)
        same = takewhile(lambda pair: pair[0] == pair[1].identity, zip(recorded, steps, strict=False))
        self.num_done, self._num_recorded = sum(1 for _ in same), len(recorded)

    @property
    def is_done(self) -> bool:
        return self.num_done == len(self.steps)

    @property
    def is_held(self) -> bool:
        """Whether another process is using the folder."""
        return holder_of(self.folder / LOCK) is not None

    def start(self, slot: Mapping[str, Any], plugins: Sequence[str]) -> bool:
        """Start the next step; return whether that was possible. slot: the options of the slot, by name"""
        try:
            self._start(slot, plugins)
        except (OSError, ResourceError) as error:
            self.error = str(error)
        return not self.error

    def _start(self, slot: Mapping[str, Any], plugins: Sequence[str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._num_recorded > self.num_done:  # forget recorded steps, because this step replaces their input
            self._record()
        step = self.steps[self.num_done]
        words = [step.command, *step.arguments, *(f"--plugin={plugin}" for plugin in plugins)]
        if step.settings:
            file = self.folder / f"{step.command}.toml"
            write_file(file, step.settings.encode(errors="surrogateescape"))
            words.append(f"--config={file}")
        words += [f"{flag_of(name)}={value}" for name, value in slot.items() if name in step.slot_options]
        environment = {**os.environ, LAUNCHER: str(os.getpid())}  # the command ends when this process does
        with (
            (self.folder / LOG_FILE).open("ab") as log,
            (self.folder / (step.output or LOG_FILE)).open("wb" if step.output else "ab") as output,
        ):
            log.write(os.fsencode(f"$ nmt {' '.join(words)}\n"))
            log.flush()
            command: list[str] = [sys.executable, "-m", "nmt", *words]
            streams: dict[str, Any] = {"stdin": DEVNULL, "stdout": output, "stderr": log}
            # The command gets a separate session, because in this one Ctrl-C would reach it twice.
            self.process = Popen(command, env=environment, start_new_session=True, **streams)

    def end(self, code: int) -> None:
        """Record that the step has ended. code: its exit status, or the negated number of the signal that ended it"""
        if code:
            how = f"was stopped by signal {-code}" if code < 0 else f"failed with exit status {code}"
            path = self.folder / LOG_FILE
            self.error = f"nmt {self.steps[self.num_done].command} {how}{_last_error(path)} ({quoted(path)})"
            return
        self.num_done += 1
        try:
            self._record()
        except ResourceError as error:
            self.error = str(error)

    def _record(self) -> None:
        """Save which steps are done."""
        done = [step.identity for step in self.steps[: self.num_done]]
        write_file(self.folder / STATE_FILE, to_json({"done": done}))
        self._num_recorded = self.num_done


def run_jobs(
    jobs: Sequence[Job], slots: Sequence[Mapping[str, Any]], plugins: Sequence[str], ended: Callable[[Job], None]
) -> None:
    """Run the steps of all jobs. As many jobs run at a time as there are slots.

    slots: additional options for the commands in each slot, by name
    ended: callback for each job that has finished or failed
    Raises Interrupted after a stop signal, which is passed on to the commands. The same jobs can be resumed afterwards.
    """
    waiting, running, is_stopping = deque(job for job in jobs if not job.is_done), dict[int, Job](), False
    deadline = time.monotonic() + LOCK_SECONDS
    with signals.Signals(seconds=None) as received:
        try:
            while waiting or running:
                if received.received and not is_stopping:
                    is_stopping = True
                    waiting.clear()
                    for job in running.values():
                        job.process.send_signal(signal.SIGTERM)
                        job.process.send_signal(signal.SIGCONT)
                for number, slot in enumerate(slots):
                    if number not in running and waiting:
                        if time.monotonic() < deadline and waiting[0].is_held:
                            waiting.rotate(-1)
                            continue
                        job = waiting.popleft()
                    elif number in running and (code := running[number].process.poll()) is not None:
                        job = running.pop(number)
                        job.end(code)
                    else:
                        continue
                    if not (job.error or job.is_done or is_stopping) and job.start(slot, plugins):
                        running[number] = job
                    elif not is_stopping:
                        ended(job)
                time.sleep(POLL_SECONDS)
        finally:
            for job in running.values():
                job.process.kill()
                job.process.wait()
        signals.check()


class _State(msgspec.Struct):
    """The content of STATE_FILE: the identities of the steps that are done."""

    done: list[list[str]]


def _recorded(path: Path) -> list[list[str]]:
    """The recorded steps; none if there is no file. Raises ArtefactError for a damaged file."""
    if not path.is_file():
        return []
    with expecting("the state of a sweep", path):
        return msgspec.convert(parse_json(read_bytes(path), path), _State).done


def _last_error(log: Path) -> str:
    """A colon followed by the last error in a log; empty if there is none."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - MAX_LOG_TAIL_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
    of_last_command = takewhile(lambda line: not line.startswith("$ nmt "), reversed(lines))
    error = next((line for line in of_last_command if line.startswith(ERROR_START)), None)
    return f": {quoted(error.removeprefix(ERROR_START))}" if error else ""
