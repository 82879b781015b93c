"""Table 2 of "Attention Is All You Need": BLEU and training cost of the published systems, from table2.toml.

The paper estimates a cost as devices x sustained single-precision TFLOPS x seconds (section 6.1 and its footnote 5).
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import msgspec

SECONDS_PER_DAY: Final = 86_400
EN_DE, EN_FR = "en-de", "en-fr"


def estimate(devices: int, tflops: float, seconds: float) -> float:
    """The paper's estimate of a training cost, in floating-point operations. tflops: 10^12 operations per second, per device"""
    return devices * tflops * 1e12 * seconds


@dataclass(frozen=True)
class PublishedTraining:
    """The hardware used for training. models: number of models in an ensemble, each trained in this way"""

    devices: int
    device: str
    days: int | float
    models: int = 1

    def flops(self) -> float:
        """The paper's estimate of the cost of this training, in FLOPs."""
        return self.models * estimate(self.devices, SUSTAINED_TFLOPS[self.device], SECONDS_PER_DAY * self.days)


@dataclass(frozen=True)
class PublishedResult:
    """A system's result on one language pair. bleu: tokenised BLEU on newstest2014; cost: FLOPs as printed, or None"""

    bleu: float
    cost: float | None = None
    training: PublishedTraining | None = None


@dataclass(frozen=True)
class PublishedSystem:
    """A row of Table 2.

    cells: results by language pair
    counted: for the paper's own models, FLOPs of the matrix products of all updates
    """

    system: str
    cells: Mapping[str, PublishedResult]
    counted: float | None = None


_TABLE: Final = tomllib.loads(files(__package__).joinpath("table2.toml").read_text("utf-8"))
SUSTAINED_TFLOPS: Final[dict[str, float]] = _TABLE["sustained_tflops"]  # TFLOPS by device
TABLE_2: Final = msgspec.convert(_TABLE["systems"], tuple[PublishedSystem, ...])
