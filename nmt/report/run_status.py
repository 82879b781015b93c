"""The status of a run: one object for log lines, for displays, and for the status.json that `nmt status` reads."""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from nmt.errors import ResourceError, expecting
from nmt.files import read_bytes, write_file
from nmt.quantities import clock, operations, size
from nmt.report.losses import LogWindow

METRICS_FILE: Final = "metrics.jsonl"
TRAIN_LOG: Final = "train.log"
STATUS_FILE: Final = "status.json"
VALIDATION_PREFIX: Final = "valid_"  # prefix of names in the record of a validation
LOSS_TEXT_PARTS: Final = ("loss", "nll")  # parts of the loss that `loss_text` shows
MAX_EXPONENT: Final = 700.0  # exp overflows a double above 709

EndReason = Literal["finished", "patience", "signal", "diverged", "full disk", "out of memory", "error"]


@dataclass(frozen=True)
class RunStatus:
    """The status of a run after an update.

    total: updates of the whole run, estimated if epochs or minutes end it; None if the run has no end
    epoch, epochs: epoch of the last update, counted from 1, and number of epochs read so far
    window: the updates since the last log line
    gradient_norm, learning_rate: values of the last update
    flops: floating-point operations of all updates
    memory: peak memory of this process in bytes: tensors on a GPU, resident memory on a CPU
    seconds_left: seconds until the run ends, at its speed so far; None if unknown
    events: seconds until the next log line, validation and checkpoint, by name
    best: the best checkpoint with its score; None before the first checkpoint
    """

    update: int
    total: int | None
    epoch: int
    epochs: float
    window: LogWindow
    gradient_norm: float
    learning_rate: float
    flops: int
    memory: int
    seconds_left: float | None
    events: Mapping[str, float]
    best: str | None

    def loss_text(self) -> str:
        """The training loss with its perplexity: the mean since the last log line."""
        means = self.window.means
        return loss_text(means["loss"], means.get("nll"), digits=2) if means else "no loss"

    def line(self) -> str:
        """The log line."""
        total = "" if self.total is None else f"/{self.total}"
        left = "unknown" if self.seconds_left is None else clock(self.seconds_left)
        return (
            f"Ep. {self.epoch} : Up. {self.update}{total} : {self.loss_text()} "
            f": tokens/s {self.window.speed:.0f} : ETA {left} : memory {size(self.memory)} "
            f": padding {100 * self.window.padding:.1f} % "
            f": gNorm {self.gradient_norm:.3f} : L.r. {self.learning_rate:.4e} : cost {operations(self.flops)}"
            + "".join(
                f" : {name} {mean:.4f}" for name, mean in self.window.means.items() if name not in LOSS_TEXT_PARTS
            )
            + (f" : skipped {self.window.skipped}" if self.window.skipped else "")
        )

    def numbers(self) -> dict[str, float]:
        """The numbers of a log line for reporters that store them, by name."""
        return {**self.window.means, "speed": self.window.speed, "lr": self.learning_rate}

    def saved(self) -> "SavedStatus":
        """The part of the status that status.json stores."""
        return SavedStatus(
            total=self.total,
            tokens_per_second=round(self.window.speed, 1),
            seconds_left=self.seconds_left,
            memory=self.memory,
            line_seconds=round(self.events["log line"], 1),
            loss_updates=(self.update - self.window.updates + 1, self.update),
            loss=self.window.means.get("loss"),
            nll=self.window.means.get("nll"),
        )


def loss_text(loss: float, nll: float | None, digits: int) -> str:
    """The loss, and the negative log-likelihood with its perplexity if the criterion reports one.

    nll: negative log-likelihood in nats per target token
    digits: number of decimal places of the perplexity
    """
    if nll is None:
        return f"loss {loss:.4f}"
    return f"loss {loss:.4f} : nll {nll:.4f} nats/token (ppl {math.exp(min(nll, MAX_EXPONENT)):.{digits}f})"


class RunEnd(msgspec.Struct, frozen=True):
    """Why a run ended, as the run recorded it. message: one sentence"""

    reason: EndReason
    message: str

    @property
    def is_last(self) -> bool:
        """Whether the run is complete, so that the same command would have nothing to do."""
        return self.reason in ("finished", "patience")


class SavedStatus(msgspec.Struct, frozen=True):
    """The content of status.json. Values that are unknown before the first log line are None.

    total: updates of the whole run
    seconds_left: seconds until its end
    memory: peak memory in bytes
    line_seconds: seconds until the next log line, estimated at the last one
    loss_updates: first and last update of the last log line
    loss, nll: means over those updates, as in the log line; None if all were skipped
    end: None while the run continues
    """

    total: int | None = None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    memory: int | None = None
    line_seconds: float | None = None
    loss_updates: tuple[int, int] | None = None
    loss: float | None = None
    nll: float | None = None
    end: RunEnd | None = None


def save_status(path: Path, status: SavedStatus) -> None:
    """Write the status atomically. On a full disk, overwrite the existing file in place."""
    data = msgspec.json.format(msgspec.json.encode(status), indent=1) + b"\n"
    try:
        write_file(path, data)
    except ResourceError:
        with contextlib.suppress(OSError), path.open("r+b") as file:
            file.write(data)
            file.truncate()


def read_status(path: Path) -> SavedStatus | None:
    """The saved status of a run; None if there is no file. Raises ArtefactError for a file with unexpected content."""
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        return None
    with expecting("the status of a run", path):
        return msgspec.json.decode(content, type=SavedStatus)
