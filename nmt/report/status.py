"""The state of a run as the log, the live display and `nmt status` show it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nmt.report.losses import LossSums

METRICS_FILE: Final = "metrics.jsonl"
TRAIN_LOG: Final = "train.log"
VALIDATION_PREFIX: Final = "valid_"  # of the names in a record of a validation
LOSS_TEXT_PARTS: Final = ("loss", "nll")  # parts of the loss that `loss_text` has
MAX_EXPONENT: Final = 700.0  # e to the power of more than 709 is no double


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
    def flops_a_second(self) -> float:
        """Floating-point operations a second."""
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def padding(self) -> float:
        """The share of the cells that hold no token."""
        return 1 - self.real_tokens / self.cells if self.cells else 0.0


@dataclass
class RunStatus:
    """The state of a run, for the log and the display.

    epoch, epochs: number of the last update's epoch, and epochs read so far
    total: updates of the whole run, an estimate where epochs or minutes end it; None when the run has no end set
    flops: of all updates
    memory: peak of this process, in bytes: on a GPU its tensors, on a CPU its resident memory
    seconds_left: until the run ends, at its speed so far; None when that is unknown
    events: seconds until each, by name
    best: the best checkpoint and its score; None before the first
    """

    update: int
    epoch: int
    epochs: float
    learning_rate: float
    gradient_norm: float
    flops: int
    memory: int
    total: int | None = None
    seconds_left: float | None = None
    events: Mapping[str, float] = field(default_factory=dict)
    best: str | None = None


def loss_text(loss: float, nll: float | None, digits: int) -> str:
    """The loss, and the negative log-likelihood with its own perplexity where the criterion has one.

    nll: nats a target token; digits: of the perplexity
    """
    if nll is None:
        return f"loss {loss:.4f}"
    return f"loss {loss:.4f} : nll {nll:.4f} nats/token (ppl {math.exp(min(nll, MAX_EXPONENT)):.{digits}f})"
