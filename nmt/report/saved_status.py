"""The status of a run in its folder: speed, time left, and why it ended, for `nmt status` in another terminal."""

import contextlib
from pathlib import Path
from typing import Final, Literal

import msgspec

from nmt.errors import ResourceError, expecting
from nmt.files import read_bytes, write_file

STATUS_FILE: Final = "status.json"
EndReason = Literal["finished", "patience", "signal", "diverged", "full disk", "out of memory", "error"]


class RunEnd(msgspec.Struct, frozen=True):
    """Why a run ended, as the run itself said. message: one sentence"""

    reason: EndReason
    message: str


class SavedStatus(msgspec.Struct, frozen=True):
    """The content of status.json; what is unknown before the first log line is None.

    total: updates of the whole run
    seconds_left: until its end; memory: peak in bytes
    line_seconds: until the next log line, as it was estimated at the last
    end: None while the run goes on
    """

    total: int | None = None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    memory: int | None = None
    line_seconds: float | None = None
    end: RunEnd | None = None


def save_status(path: Path, status: SavedStatus) -> None:
    """Write the status atomically; on a full disk into the blocks that the file has, and else not at all."""
    data = msgspec.json.format(msgspec.json.encode(status), indent=1) + b"\n"
    try:
        write_file(path, data)
    except ResourceError:
        with contextlib.suppress(OSError), path.open("r+b") as file:
            file.write(data)
            file.truncate()


def read_status(path: Path) -> SavedStatus | None:
    """The status that a run saved; None if there is none. Raises ArtefactError for anything else."""
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        return None
    with expecting("the status of a run", path):
        return msgspec.json.decode(content, type=SavedStatus)
