"""The parts of a loss over many batches: sums, and the means that are logged."""

from dataclasses import dataclass, field


@dataclass
class LossSums:
    """Sums of the parts of a loss.

    trained: names of the parts whose means add up to the loss
    totals, counts: by name, trained and reported parts
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
        """The mean of a part; 0 where it has no count."""
        return self.totals[name] / self.counts[name] if self.counts[name] else 0.0

    @property
    def loss(self) -> float:
        """The sum of the means of the trained parts."""
        return sum(map(self.mean, self.trained))

    @property
    def nll(self) -> float | None:
        """The negative log-likelihood in nats a target token, which gives a perplexity; None without that part."""
        return self.mean("nll") if "nll" in self.totals else None

    @property
    def mean_nll(self) -> float:
        """Nats a target token: the part `nll`, or the loss where there is none."""
        return self.loss if self.nll is None else self.nll

    def means(self) -> dict[str, float]:
        """`loss`, then each part by name; a part named `loss` is `main_loss` beside other trained parts."""
        parts = {name: self.mean(name) for name in self.totals if self.trained != ("loss",) or name != "loss"}
        return {"loss": self.loss, **{"main_loss" if name == "loss" else name: mean for name, mean in parts.items()}}
