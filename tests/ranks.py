"""The processes of a command with `--devices N`."""

import contextlib
import subprocess
from pathlib import Path


def ranks_of(process: "subprocess.Popen[str]") -> dict[int, int]:
    """The process id of each rank that lives."""
    found = {}
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            words = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            found |= {int(word[5:]): int(child) for word in words if word.startswith(b"RANK=")}
    return found
