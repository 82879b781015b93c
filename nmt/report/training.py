"""The report of a training run: metrics.jsonl, log lines or a live display, and TensorBoard.

`metrics.jsonl` is a function of data and settings, so that an interrupted and continued run writes the same bytes as an
undisturbed one. Times and speeds are only on stderr, in `train.log` and in TensorBoard.
"""

import contextlib
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nmt.artefact import storage_error
from nmt.errors import ResourceError, missing_package, quoted
from nmt.log import log
from nmt.report.losses import LossSums

METRICS_FILE: Final = "metrics.jsonl"
MAX_EXPONENT: Final = 700.0  # e to the power of more than 709 is no double
SHOWN_AS: Final = {"loss": "loss", "nll": "ppl"}  # parts of the loss that a log line has under these names


@dataclass
class LogWindow:
    """Sums since the last log line.

    skipped: updates that were not applied; they count in neither losses nor target_tokens
    real_tokens, cells: tokens of both sides, without and with padding
    flops: floating-point operations, padding not counted
    seconds: of training, without validation and saving
    """

    updates: int = 0
    skipped: int = 0
    losses: LossSums = field(default_factory=LossSums)
    target_tokens: int = 0
    real_tokens: int = 0
    cells: int = 0
    flops: int = 0
    seconds: float = 0.0

    @property
    def speed(self) -> float:
        """Target tokens a second, padding not counted."""
        return self.target_tokens / self.seconds if self.seconds else 0.0

    @property
    def tflops(self) -> float:
        """10^12 floating-point operations a second."""
        return self.flops / self.seconds / 1e12 if self.seconds else 0.0

    @property
    def padding(self) -> float:
        """The share of the cells that hold no token."""
        return 1 - self.real_tokens / self.cells if self.cells else 0.0


@dataclass
class RunStatus:
    """The state of a run, for the log and the display.

    total: updates of the whole run, an estimate where epochs or minutes end it; None when the run has no end set
    flops: of all updates
    memory: peak of this process, in bytes: on a GPU its tensors, on a CPU its resident memory
    seconds_left: until the run ends, at its speed so far; None when that is unknown
    events: seconds until each, by name
    """

    update: int
    epoch: int
    learning_rate: float
    gradient_norm: float
    flops: int
    memory: int
    total: int | None = None
    seconds_left: float | None = None
    events: Mapping[str, float] = field(default_factory=dict)


class NoReport:
    """The report of ranks other than the leader: nothing."""

    def close(self) -> None: ...
    def cut(self, offset: int) -> None: ...
    def record(self, values: Mapping[str, Any]) -> None: ...
    def line(self, text: str) -> None: ...
    def training(self, status: RunStatus, window: LogWindow) -> None: ...
    def validation(
        self, update: int, text: str, scores: Mapping[str, float], examples: Sequence[tuple[str, str, str]]
    ) -> None: ...
    def offset(self) -> int:
        return 0


class LogOnlyReport(NoReport):
    """The report of a dry run: log lines, and no file."""

    def line(self, text: str) -> None:
        log.info(text)


class Report:
    """Writes metrics.jsonl and train.log, and shows the run live on a terminal or in plain lines.

    tensorboard: also write events for it under RUN/tensorboard (needs the extra `tensorboard`)
    """

    def __init__(self, run: Path, tensorboard: bool) -> None:
        try:
            self._metrics = (run / METRICS_FILE).open("ab", buffering=0)
            self._text = (run / "train.log").open("a", encoding="utf-8")
        except OSError as error:
            raise storage_error(error, run) from error
        self._path = run / METRICS_FILE
        self._size = self._path.stat().st_size
        self._pending: list[bytes] = []  # lines not yet in the file: a full disk loses none while the run lives
        self._writer = _tensorboard(run / "tensorboard") if tensorboard else None
        self._started = time.monotonic()
        self._rows: dict[str, str] = {}  # of the display
        self._valid = ""
        self._examples: Sequence[tuple[str, str, str]] = ()
        self._live = Live(console=log.console, auto_refresh=False, transient=True) if log.live else None
        if self._live:
            self._live.start()

    def close(self) -> None:
        if self._live:
            self._live.stop()
        with contextlib.suppress(OSError, ResourceError):  # what a checkpoint needs was written with it
            self._flush()
            self._metrics.close()
            self._text.close()
        if self._writer:
            self._writer.close()

    def cut(self, offset: int) -> None:
        """Cut metrics.jsonl back to its length at a checkpoint."""
        if self._size < offset:
            log.warn(
                f"{quoted(self._path)}: has {self._size:,} bytes, the checkpoint saw {offset:,}; its lines are lost"
            )
            return
        self._metrics.truncate(offset)
        self._size = offset

    def offset(self) -> int:
        """Write metrics.jsonl to disk and return its bytes. Raises ResourceError if that fails."""
        self._flush()
        try:
            os.fsync(self._metrics.fileno())
        except OSError as error:
            raise storage_error(error, self._path) from error
        return self._size

    def record(self, values: Mapping[str, Any]) -> None:
        """Add a line to metrics.jsonl; floats that are not finite are null."""
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
        self._pending.append((json.dumps(finite, allow_nan=False) + "\n").encode())

    def _flush(self) -> None:
        """Write the pending lines, all or none."""
        data = b"".join(self._pending)
        try:
            written = 0
            while written < len(data):
                written += self._metrics.write(data[written:])
        except OSError as error:
            self._metrics.truncate(self._size)
            raise storage_error(error, self._path, len(data)) from error
        self._size += len(data)
        self._pending.clear()

    def line(self, text: str) -> None:
        """Log a line with the time, on stderr (above the live display) and in train.log."""
        stamped = self._log(text)
        if self._live:
            self._live.console.print(Text(stamped))
        else:
            log.info(stamped)

    def _log(self, text: str) -> str:
        """Add a line to train.log, unless the disk is full, and write the pending lines of metrics.jsonl."""
        stamped = f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}"
        with contextlib.suppress(OSError):
            self._text.write(stamped + "\n")
            self._text.flush()
        with contextlib.suppress(ResourceError):
            self._flush()
        return stamped

    def training(self, status: RunStatus, window: LogWindow) -> None:
        """Log the updates of a window."""
        losses, total = window.losses, "" if status.total is None else f"/{status.total}"
        left = "unknown" if status.seconds_left is None else clock(status.seconds_left)
        text = (
            f"Ep. {status.epoch} : Up. {status.update}{total} : {loss_text(losses.loss, losses.nll, digits=2)} "
            f": tokens/s {window.speed:.0f} : ETA {left} : memory {status.memory / 1e9:.2f} GB "
            f": padding {100 * window.padding:.1f} % "
            f": gNorm {status.gradient_norm:.3f} : L.r. {status.learning_rate:.4e} : EFLOP {status.flops / 1e18:.3e}"
            + "".join(f" : {name} {mean:.4f}" for name, mean in losses.means().items() if name not in SHOWN_AS)
            + (f" : skipped {window.skipped}" if window.skipped else "")
        )
        self._scalars(status.update, {**losses.means(), "speed": window.speed, "lr": status.learning_rate})
        if self._live is None:
            self.line(text)
            return
        self._log(text)
        self._rows = {
            "epoch, update": f"{status.epoch}, {status.update:,}",
            "loss": loss_text(losses.loss, losses.nll, digits=2),
            "speed": f"{window.speed:,.0f} target tokens/s, {100 * window.padding:.1f} % padding",
            "cost": f"{status.flops / 1e18:.3e} EFLOP ({window.tflops:.3g} TFLOP/s)",
            "learning rate": f"{status.learning_rate:.3e} (gradient norm {status.gradient_norm:.3f})",
            "next": ", ".join(f"{name} in {clock(seconds)}" for name, seconds in status.events.items()),
            "time": f"{clock(time.monotonic() - self._started)} so far, {left} to go",
        }
        self._draw()

    def validation(
        self, update: int, text: str, scores: Mapping[str, float], examples: Sequence[tuple[str, str, str]]
    ) -> None:
        """Log the scores of a validation, and show a few examples: (source, translation, reference)."""
        self._scalars(update, {f"valid/{name}": score for name, score in scores.items()})
        self._valid, self._examples = text, examples
        self.line(text)
        self._draw()

    def _draw(self) -> None:
        if self._live is None:
            return
        table = Table.grid(padding=(0, 2))
        validation = {"validation": self._valid} if self._valid else {}
        for name, value in (self._rows | validation).items():
            table.add_row(Text(name, style="bold"), Text(value))
        lines = [
            Text(f"{label}  {text}", style=style, overflow="ellipsis", no_wrap=True)
            for source, output, reference in self._examples
            for label, text, style in (("src", source, "dim"), ("out", output, "green"), ("ref", reference, "dim"))
        ]
        self._live.update(Group(table, *lines), refresh=True)

    def _scalars(self, update: int, values: Mapping[str, float]) -> None:
        if self._writer:
            for name, value in values.items():
                self._writer.add_scalar(name, value, update)


def loss_text(loss: float, nll: float | None, digits: int) -> str:
    """The loss, and the negative log-likelihood with its own perplexity where the criterion has one.

    nll: nats a target token; digits: of the perplexity
    """
    if nll is None:
        return f"loss {loss:.4f}"
    return f"loss {loss:.4f} : nll {nll:.4f} nats/token (ppl {math.exp(min(nll, MAX_EXPONENT)):.{digits}f})"


def clock(seconds: float) -> str:
    """A duration as hours:minutes:seconds."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise missing_package("--tensorboard", "tensorboard", "tensorboard") from None
    return SummaryWriter(str(folder))
