"""The children of a process, and those of a command with `--devices N` by rank."""

import contextlib
import subprocess
from pathlib import Path


def children_of(parent: int) -> list[int]:
    """The process ids of the children of a process."""
    return [int(child) for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def ranks_of(process: "subprocess.Popen[str]") -> dict[int, int]:
    """The process id of each rank that lives. process: nmt, or `ask_fork.py`, whose ranks have names (forks.py)"""
    found = {}
    for child in children_of(process.pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            words = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            found |= {int(word[5:]): child for word in words if word.startswith(b"RANK=")}
    for name in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            rank, _, asked_by = name.read_text().strip().removeprefix("RANK=").partition("@")
            found |= {int(rank): int(name.parent.name)} if asked_by == str(process.pid) else {}
    return found
