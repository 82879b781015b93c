"""The report of a training run: metrics.jsonl, log lines or a live display, and TensorBoard.

`metrics.jsonl` is a function of data and settings, so that an interrupted and continued run writes the same bytes as an
undisturbed one. Times and speeds are only on stderr, in `train.log` and in TensorBoard.
"""

import contextlib
import json
import math
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from nmt.errors import ResourceError, naming, quoted, storage_error
from nmt.files import write_file
from nmt.installation import required
from nmt.locks import open_without_following
from nmt.log import log
from nmt.quantities import clock, operations, size
from nmt.report.saved_status import STATUS_FILE, EndReason, RunEnd, SavedStatus, save_status
from nmt.report.status import LOSS_TEXT_PARTS, METRICS_FILE, TRAIN_LOG, LogWindow, RunStatus, loss_text

if TYPE_CHECKING:  # rich is imported on a terminal only
    from nmt.extensions.watch.display import TrainingDisplay

APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
WANDB_ID_FILE: Final = "wandb-id"
SHOW_SECONDS: Final = 1.0
STATUS_SECONDS: Final = 5.0  # between two writes of the status: each waits for the disk


class NoReport:
    """The report of ranks other than the leader: nothing."""

    def _ignore(self, *_: object) -> None: ...

    close = cut = end = record = show = sync = training = validation = write_status = _ignore

    def line(self, text: str) -> None: ...

    def is_due(self) -> bool:
        return False

    def offset(self) -> int:
        return 0


class LogOnlyReport(NoReport):
    """The report of a dry run: log lines, and no file."""

    def line(self, text: str) -> None:
        log.info(text)


class Report:
    """Writes metrics.jsonl and train.log, and shows the run live on a terminal or in plain lines.

    tensorboard: also write events for it under RUN/tensorboard (needs the extra `tensorboard`)
    wandb: also send them to Weights & Biases (needs the extra `wandb`)
    """

    def __init__(self, run: Path, tensorboard: bool, wandb: bool) -> None:
        self._writer = _tensorboard(run / "tensorboard") if tensorboard else None
        self._wandb = _wandb(run) if wandb else None
        try:
            metrics, text = (open_without_following(str(run / name), APPEND) for name in (METRICS_FILE, TRAIN_LOG))
            self._metrics = os.fdopen(metrics, "ab", buffering=0)
            self._text = os.fdopen(text, "a", encoding="utf-8", errors="backslashreplace", newline="\n")
        except OSError as error:
            raise storage_error(error, Path(error.filename or run)) from error
        self._path = run / METRICS_FILE
        self._size = self._path.stat().st_size
        self._is_torn = False  # whether a failed write has left something behind `_size`
        self._pending: list[bytes] = []  # lines not yet in the file: a full disk loses none while the run lives
        self._status, self._status_file = SavedStatus(), run / STATUS_FILE
        self._status_written = -math.inf
        self._shown = -math.inf  # when `show` was called last
        self._display: TrainingDisplay | None = None
        if log.live:
            from nmt.extensions.watch import display

            self._display = display.TrainingDisplay()
            self._display.start()

    def close(self) -> None:
        if self._display:
            self._display.stop()
        with contextlib.suppress(OSError, ResourceError):  # what a checkpoint needs was written with it
            self._flush()
            self._metrics.close()
            self._text.close()
        if self._writer:
            self._writer.close()
        if self._wandb:
            self._wandb.finish()

    def cut(self, offset: int) -> None:
        """Cut metrics.jsonl back to its length at a checkpoint, or to 0 without one."""
        if not offset and self._size:
            log.warn(f"{quoted(self._path)}: no checkpoint was saved, and its updates are lost; beginning at update 1")
        if self._size < offset:
            log.warn(
                f"{quoted(self._path)}: has {self._size:,} bytes, the checkpoint saw {offset:,}; its lines are lost"
            )
            return
        with naming(self._path):
            self._metrics.truncate(offset)
        self._size = offset

    def offset(self) -> int:
        """Write the lines of metrics.jsonl and return its bytes. Raises ResourceError if that fails."""
        self._flush()
        return self._size

    def sync(self) -> None:
        """Sync metrics.jsonl, which another thread may do. Raises ResourceError if that fails."""
        try:
            os.fsync(self._metrics.fileno())
        except OSError as error:
            raise storage_error(error, self._path) from error

    def record(self, values: Mapping[str, Any]) -> None:
        """Add a line to metrics.jsonl; floats that are not finite are null."""
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        self._pending.append((json.dumps(finite, allow_nan=False) + "\n").encode())
        if self._display:
            self._display.add(finite)

    def _flush(self) -> None:
        """Write the pending lines, all or none."""
        data = b"".join(self._pending)
        try:
            self._cut_back()
            written = 0
            self._is_torn = True
            while written < len(data):
                written += self._metrics.write(data[written:])
            self._is_torn = False
        except OSError as error:
            with contextlib.suppress(OSError):  # or before the next write
                self._cut_back()
            raise storage_error(error, self._path, len(data)) from error
        self._size += len(data)
        self._pending.clear()

    def _cut_back(self) -> None:
        """Remove what a failed write has left."""
        if self._is_torn:
            self._metrics.truncate(self._size)
            self._is_torn = False

    def line(self, text: str, on_screen: bool = True) -> None:
        """Log a line with the time, on stderr (above the live display) and in train.log, and write metrics.jsonl."""
        stamped = f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}"
        with contextlib.suppress(OSError):  # a full disk ends no training
            self._text.write(stamped + "\n")
            self._text.flush()
        with contextlib.suppress(ResourceError):
            self._flush()
        if on_screen:
            log.info(stamped)

    def is_due(self) -> bool:
        """Whether `show` has something to do: at most once a second, and with a display only."""
        return self._display is not None and time.monotonic() - self._shown >= SHOW_SECONDS

    def show(self, status: RunStatus, window: LogWindow) -> None:
        """Give the display the state of the run."""
        if self._display:
            self._shown = time.monotonic()
            self._display.show(status, window)

    def training(self, status: RunStatus, window: LogWindow) -> None:
        """Log the updates of a window; the live display shows the same numbers, and its screen gets no line of them."""
        losses, total = window.losses, "" if status.total is None else f"/{status.total}"
        loss = loss_text(losses.loss, losses.nll, digits=2) if losses.totals else "no loss"  # all updates were skipped
        left = "unknown" if status.seconds_left is None else clock(status.seconds_left)
        text = (
            f"Ep. {status.epoch} : Up. {status.update}{total} : {loss} "
            f": tokens/s {window.speed:.0f} : ETA {left} : memory {size(status.memory)} "
            f": padding {100 * window.padding:.1f} % "
            f": gNorm {status.gradient_norm:.3f} : L.r. {status.learning_rate:.4e} : cost {operations(status.flops)}"
            + "".join(f" : {name} {mean:.4f}" for name, mean in losses.means().items() if name not in LOSS_TEXT_PARTS)
            + (f" : skipped {window.skipped}" if window.skipped else "")
        )
        self._scalars(
            status.update,
            {**(losses.means() if losses.totals else {}), "speed": window.speed, "lr": status.learning_rate},
        )
        self.line(text, on_screen=self._display is None)
        self.show(status, window)
        self._status = SavedStatus(
            total=status.total,
            tokens_per_second=round(window.speed, 1),
            seconds_left=status.seconds_left,
            memory=status.memory,
            line_seconds=round(status.events["log line"], 1),
        )
        if time.monotonic() - self._status_written >= STATUS_SECONDS:
            self.write_status()

    def end(self, reason: EndReason, message: str) -> None:
        """Save why the run ends, for `nmt status`."""
        self._status = msgspec.structs.replace(self._status, seconds_left=None, end=RunEnd(reason, message))
        self.write_status()

    def write_status(self) -> None:
        """Save how the run stands, for `nmt status`."""
        self._status_written = time.monotonic()
        save_status(self._status_file, self._status)

    def validation(
        self, update: int, text: str, scores: Mapping[str, float], examples: Sequence[tuple[str, str, str]]
    ) -> None:
        """Log the scores of a validation, and show a few examples: (source, translation, reference)."""
        self._scalars(update, {f"valid/{name}": score for name, score in scores.items()})
        if self._display:
            self._display.examples = examples
        self.line(text)

    def _scalars(self, update: int, values: Mapping[str, float]) -> None:
        if self._writer:
            for name, value in values.items():
                self._writer.add_scalar(name, value, update)
        if self._wandb:
            self._wandb.log(dict(values), step=update)


def _tensorboard(folder: Path) -> Any:
    tensorboard = required("torch.utils.tensorboard", "--tensorboard", "tensorboard")
    return tensorboard.SummaryWriter(str(folder))


def _wandb(run: Path) -> Any:
    """The run of Weights & Biases, which an interrupted and continued run continues by its id."""
    wandb = required("wandb", "--wandb", "wandb")
    id_file = run / WANDB_ID_FILE
    if not id_file.is_file():
        write_file(id_file, uuid.uuid4().hex.encode())
    return wandb.init(dir=run, name=run.name, id=id_file.read_text(), resume="allow")
