"""What updates report: sums of the parts of a loss, statistics of an update, and totals over several updates."""

from dataclasses import dataclass, field


@dataclass
class LossSums:
    """Sums of the parts of a loss.

    trained: names of the parts whose means add up to the loss
    totals, counts: by name, for trained parts and for those that are only reported
    """

    trained: tuple[str, ...] = ()
    totals: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)

    def add(self, other: "LossSums") -> None:
        """Add the sums of other batches with the same parts."""
        self.trained = other.trained
        for name in other.totals:
            self.totals[name] = self.totals.get(name, 0.0) + other.totals[name]
            self.counts[name] = self.counts.get(name, 0.0) + other.counts[name]

    def mean(self, name: str) -> float:
        """The mean of a part; 0 if its count is 0."""
        return self.totals[name] / self.counts[name] if self.counts[name] else 0.0

    @property
    def loss(self) -> float:
        """The sum of the means of the trained parts."""
        return sum(map(self.mean, self.trained))

    @property
    def mean_nll(self) -> float:
        """Nats per target token: the part `nll`, or the loss if there is no such part."""
        return self.mean("nll") if "nll" in self.totals else self.loss

    def means(self) -> dict[str, float]:
        """`loss`, then each part by name. A part named `loss` is called `main_loss` if there are other trained parts."""
        parts = {name: self.mean(name) for name in self.totals if self.trained != ("loss",) or name != "loss"}
        return {"loss": self.loss, **{"main_loss" if name == "loss" else name: mean for name, mean in parts.items()}}


@dataclass(frozen=True)
class Stats:
    """Statistics of an update.

    losses: parts of the loss, over all ranks
    tokens: target tokens, over all ranks
    real, cells: source and target tokens of this rank, without and with padding
    gradient_norm: 2-norm before clipping
    applied: False if the loss or the gradient was not finite, so the weights did not change
    max_micro_batch_tokens: largest micro-batch that fits on the device, in tokens, including padding
    """

    losses: LossSums
    tokens: int
    real: int
    cells: int
    gradient_norm: float
    applied: bool
    max_micro_batch_tokens: int


@dataclass
class LogWindow:
    """Totals over the updates since the last log line.

    skipped: updates that were not applied; losses and target_tokens do not include them
    real_tokens, cells: source and target tokens, without and with padding
    flops: floating-point operations, without padding
    seconds: seconds of training, without validation and saving
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
    def means(self) -> dict[str, float]:
        """The loss and its parts, by name; empty if all updates were skipped."""
        return self.losses.means() if self.losses.totals else {}

    @property
    def speed(self) -> float:
        """Target tokens per second, without padding."""
        return self.target_tokens / self.seconds if self.seconds else 0.0

    @property
    def flops_per_second(self) -> float:
        """Floating-point operations per second."""
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def padding(self) -> float:
        """The share of cells that are padding."""
        return 1 - self.real_tokens / self.cells if self.cells else 0.0

    def add(self, stats: Stats, flops: int, seconds: float) -> None:
        """Add an update."""
        self.updates += 1
        self.seconds += seconds
        self.real_tokens += stats.real
        self.cells += stats.cells
        self.flops += flops
        self.skipped += not stats.applied
        if stats.applied:
            self.target_tokens += stats.tokens
            self.losses.add(stats.losses)
