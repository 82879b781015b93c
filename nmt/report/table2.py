"""Table 2 of "Attention Is All You Need": BLEU and training cost of the published systems, and what the costs are made of.

The paper estimates a cost as devices x sustained single-precision TFLOPS x seconds (section 6.1 and its footnote 5).
Devices and days are those of the systems' own papers; where those give none, a range, or several, it is the ones that
give the printed cost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SUSTAINED_TFLOPS: Final = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}  # footnote 5
SECONDS_A_DAY: Final = 86_400
EN_DE, EN_FR = "en-de", "en-fr"


def estimate(devices: int, tflops: float, seconds: float) -> float:
    """The paper's estimate of a training's floating-point operations. tflops: 10^12 a second that one device sustains."""
    return devices * tflops * 1e12 * seconds


@dataclass(frozen=True)
class Training:
    """The hardware of a published training. models: of an ensemble, each trained so."""

    devices: int
    device: str
    days: float
    models: int = 1

    def flops(self) -> float:
        """What the paper's estimate gives for it."""
        return self.models * estimate(self.devices, SUSTAINED_TFLOPS[self.device], SECONDS_A_DAY * self.days)


@dataclass(frozen=True)
class Cell:
    """A system on one language pair. bleu: of newstest2014, tokenised; cost: FLOPs as printed, None where nothing is."""

    bleu: float
    cost: float | None = None
    training: Training | None = None


@dataclass(frozen=True)
class Published:
    """A row of Table 2. cells: by language pair.

    counted: for the paper's own models, FLOPs of the matrix products of their updates of 25,000 target tokens, in
    sentences of 28 and with 37,000 subwords: `Model.flops`, three times
    """

    system: str
    cells: Mapping[str, Cell]
    counted: float | None = None


# The two costs of the paper's own models stand in cells that span both language pairs.
BASE: Final = Training(8, "P100", 0.5)
BIG: Final = Training(8, "P100", 3.5)


TABLE_2: Final = (
    Published("ByteNet", {EN_DE: Cell(23.75)}),
    Published("Deep-Att + PosUnk", {EN_FR: Cell(39.2, 1.0e20, Training(32, "K40", 10))}),
    Published(
        "GNMT + RL",
        {EN_DE: Cell(24.6, 2.3e19, Training(96, "K80", 1)), EN_FR: Cell(39.92, 1.4e20, Training(96, "K80", 6))},
    ),
    Published(
        "ConvS2S",
        {
            EN_DE: Cell(25.16, 9.6e18, Training(1, "M40", 18.5)),
            EN_FR: Cell(40.46, 1.5e20, Training(8, "M40", 37)),
        },
    ),
    Published(
        "MoE", {EN_DE: Cell(26.03, 2.0e19, Training(64, "K40", 1)), EN_FR: Cell(40.56, 1.2e20, Training(64, "K40", 6))}
    ),
    Published("Deep-Att + PosUnk Ensemble", {EN_FR: Cell(40.4, 8.0e20, Training(32, "K40", 10, models=8))}),
    Published(
        "GNMT + RL Ensemble",
        {
            EN_DE: Cell(26.30, 1.8e20, Training(96, "K80", 1, models=8)),
            EN_FR: Cell(41.16, 1.1e21, Training(96, "K80", 6, models=8)),
        },
    ),
    Published(
        "ConvS2S Ensemble",
        {
            EN_DE: Cell(26.36, 7.7e19, Training(1, "M40", 18.5, models=8)),
            EN_FR: Cell(41.29, 1.2e21, Training(8, "M40", 37, models=8)),
        },
    ),
    Published("Transformer (base model)", {EN_DE: Cell(27.3, 3.3e18, BASE), EN_FR: Cell(38.1, 3.3e18, BASE)}, 9.5e17),
    Published("Transformer (big)", {EN_DE: Cell(28.4, 2.3e19, BIG), EN_FR: Cell(41.8, 2.3e19, BIG)}, 9.7e18),
)
