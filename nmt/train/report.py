"""The report of a training run: metrics.jsonl, status.json, and the lines and numbers that reporters receive.

The content of `metrics.jsonl` depends only on data and settings, so a run that was interrupted and resumed writes the same
bytes as an uninterrupted run. Times and speeds go only to the reporters: to stderr, `train.log` and TensorBoard.
"""

import contextlib
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from nmt.data.loader import UpdateBatches
from nmt.errors import ResourceError, naming, quoted, storage_error
from nmt.files import open_to_append
from nmt.log import log, stamped
from nmt.report.run_status import METRICS_FILE, STATUS_FILE, EndReason, RunEnd, RunStatus, SavedStatus, save_status
from nmt.reporters.base import Reporter

SHOW_SECONDS: Final = 1.0
STATUS_SECONDS: Final = 5.0  # minimum time between two writes of the status, each of which waits for the disk


class NoReport:
    """The report of every rank except the leader. It does nothing."""

    def _ignore(self, *_: object) -> None: ...

    close = truncate = end = record = show = sync = training = update = validation = write_status = _ignore

    def line(self, text: str) -> None: ...

    def is_due(self) -> bool:
        return False

    def offset(self) -> int:
        return 0


class Report:
    """Writes metrics.jsonl and status.json, and passes the run's lines and numbers to reporters."""

    def __init__(self, run: Path, reporters: Sequence[Reporter]) -> None:
        """Raises ResourceError if a file cannot be opened."""
        self._path, self._reporters = run / METRICS_FILE, reporters
        self._draws = any(reporter.draws for reporter in reporters)
        self._metrics = os.fdopen(open_to_append(self._path), "ab", buffering=0)
        self._size = self._path.stat().st_size
        self._is_torn = False  # whether a failed write has left bytes after `_size`
        self._pending: list[bytes] = []  # lines not yet written, kept so that none is lost while the disk is full
        self._status, self._status_file = SavedStatus(), run / STATUS_FILE
        self._status_written = -math.inf
        self._shown = -math.inf  # when `show` was last called
        with contextlib.ExitStack() as opened:  # closes all reporters if one fails to start
            opened.callback(self._metrics.close)
            for reporter in reporters:
                reporter.start()
                opened.callback(reporter.close)
            opened.pop_all()

    def close(self) -> None:
        with contextlib.suppress(OSError, ResourceError):  # a save has already written the lines that it needs
            self._flush()
            self._metrics.close()
        for reporter in reversed(self._reporters):
            reporter.close()

    def truncate(self, offset: int) -> None:
        """Truncate metrics.jsonl to its length at a checkpoint, or to 0 if there is no checkpoint."""
        if not offset and self._size:
            log.warn(f"{quoted(self._path)}: no checkpoint was saved, so all updates are lost; starting at update 1")
        if self._size < offset:
            log.warn(
                f"{quoted(self._path)}: lines are missing; the file has {self._size:,} bytes, but had {offset:,} when the "
                "checkpoint was saved"
            )
        if self._size <= offset:  # a finished run is left untouched
            return
        with naming(self._path):
            self._metrics.truncate(offset)
        self._size = offset

    def offset(self) -> int:
        """Write the pending lines of metrics.jsonl and return its size in bytes. Raises ResourceError if that fails."""
        self._flush()
        return self._size

    def sync(self) -> None:
        """Sync metrics.jsonl to the disk. Any thread may call this. Raises ResourceError if that fails."""
        try:
            os.fsync(self._metrics.fileno())
        except OSError as error:
            raise storage_error(error, self._path) from error

    def record(self, values: Mapping[str, Any]) -> None:
        """Add a line to metrics.jsonl. Floats that are not finite become null."""
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        self._pending.append((json.dumps(finite, allow_nan=False) + "\n").encode())
        for reporter in self._reporters:
            reporter.record(finite)

    def _flush(self) -> None:
        """Write all pending lines, or none."""
        data = b"".join(self._pending)
        try:
            self._remove_torn()
            written = 0
            self._is_torn = True
            while written < len(data):
                written += self._metrics.write(data[written:])
            self._is_torn = False
        except OSError as error:
            with contextlib.suppress(OSError):  # the next write retries this
                self._remove_torn()
            raise storage_error(error, self._path, len(data)) from error
        self._size += len(data)
        self._pending.clear()

    def _remove_torn(self) -> None:
        """Remove the bytes that a failed write has left behind."""
        if self._is_torn:
            self._metrics.truncate(self._size)
            self._is_torn = False

    def line(self, text: str, on_screen: bool = True) -> None:
        """Log a line with the time, and write metrics.jsonl. on_screen: False if a reporter draws the same numbers"""
        with contextlib.suppress(ResourceError):
            self._flush()
        with_time = stamped(text)
        for reporter in self._reporters:
            reporter.line(with_time, on_screen)

    def is_due(self) -> bool:
        """Whether to call `show`: at most once per second, and only if a reporter draws."""
        return self._draws and time.monotonic() - self._shown >= SHOW_SECONDS

    def show(self, status: RunStatus) -> None:
        """Pass the state of the run to the reporters that draw it."""
        self._shown = time.monotonic()
        for reporter in self._reporters:
            if reporter.draws:
                reporter.show(status)

    def update(self, run: Any, data: UpdateBatches) -> None:
        """Notify the reporters of an update of a run (nmt.train.run.Run) on this data."""
        for reporter in self._reporters:
            reporter.update(run, data)

    def training(self, status: RunStatus) -> None:
        """Log the state of the run. The line is not shown on the screen if a reporter draws the same numbers there."""
        self._scalars(status.update, status.numbers())
        self.line(status.line(), on_screen=not self._draws)
        self.show(status)
        self._status = status.saved()
        if time.monotonic() - self._status_written >= STATUS_SECONDS:
            self.write_status()

    def end(self, reason: EndReason, message: str) -> None:
        """Save the reason why the run ends, for `nmt status`."""
        self._status = msgspec.structs.replace(self._status, seconds_left=None, end=RunEnd(reason, message))
        self.write_status()

    def write_status(self) -> None:
        """Save the state of the run, for `nmt status`."""
        self._status_written = time.monotonic()
        save_status(self._status_file, self._status)

    def validation(
        self, update: int, text: str, scores: Mapping[str, float], examples: Sequence[tuple[str, str, str]]
    ) -> None:
        """Log the scores of a validation. examples: a few (source, translation, reference)"""
        self._scalars(update, {f"valid/{name}": score for name, score in scores.items()})
        for reporter in self._reporters:
            reporter.examples(examples)
        self.line(text)

    def _scalars(self, update: int, values: Mapping[str, float]) -> None:
        for reporter in self._reporters:
            reporter.numbers(update, values)
