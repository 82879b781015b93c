"""Options of the optimizers besides Adam. This module does not import torch, so that `--help` is fast."""

from typing import Final

from nmt import opt, options_class
from nmt.optimizers.options import DECOUPLED_DECAY, MIN_EPS, AdamOptions, AdamWOptions

MIN_MOMENT_EPS: Final = (
    1e-18  # torch squares it in float32; with a smaller value, unused embeddings would lead to 0 / 0
)


@options_class
class MuonOptions(AdamWOptions):
    momentum: float = opt(0.95, "decay of the running mean of matrix gradients (Nesterov momentum)", minimum=0, below=1)


@options_class
class ScheduleFreeOptions(AdamOptions):
    adam_betas: tuple[float, float] = opt(
        (0.9, 0.999),
        "interpolation towards the averaged weights for gradients; decay rate of the second moment",
        minimum=0,
        below=1,
    )
    adam_eps: float = opt(1e-8, "constant added to the root of the second moment", minimum=MIN_EPS)
    weight_decay: float = opt(0.0, DECOUPLED_DECAY, aliases=("wd",), minimum=0)


@options_class
class AdamSgdOptions(AdamOptions):
    adam_betas: tuple[float, float] = opt(
        (0.9, 0.999), "decay rates of the first and second moments of the gradient", minimum=0, below=1
    )
    adam_eps: float = opt(1e-8, "constant added to the root of the second moment", minimum=MIN_EPS)
    adam_updates: int = opt(
        60_000, "number of updates with Adam before gradient descent takes over; 60,000 in GNMT", minimum=0
    )
    sgd_lr_factor: float = opt(
        2500.0,
        "factor applied to the learning rate during gradient descent; 2500 in GNMT (2e-4 to 0.5)",
        above=0,
    )


@options_class
class AdadeltaOptions:
    adadelta_rho: float = opt(0.95, "decay rate of the running means of squares", minimum=0, below=1)
    adadelta_eps: float = opt(1e-6, "constant added to the mean squares before taking the root", minimum=MIN_EPS)
    weight_decay: float = opt(0.0, "L2 penalty added to the gradient", aliases=("wd",), minimum=0)


@options_class
class SgdOptions:
    momentum: float = opt(
        0.0, "share of the previous step that is kept; 0 for plain gradient descent", minimum=0, below=1
    )
    nesterov: bool = opt(False, "use Nesterov momentum")
    weight_decay: float = opt(0.0, "L2 penalty added to the gradient", aliases=("wd",), minimum=0)

    def __post_init__(self) -> None:
        if self.nesterov and self.momentum == 0:
            raise ValueError("--nesterov needs --momentum (add --momentum 0.9)")


@options_class
class AdafactorOptions:
    adafactor_beta2_decay: float = opt(
        -0.8, "exponent c of the second moment's decay rate, 1 - update^c; -0.8 in the paper", maximum=0
    )
    adafactor_eps: tuple[float, float] = opt(
        (1e-15, 1e-3),
        "lower bounds for the second moment's root and a matrix's root mean square",
        above=0,
    )
    adafactor_clip: float = opt(
        1.0, "root mean square above which a matrix's update is scaled down; d in the paper", minimum=1
    )
    weight_decay: float = opt(0.0, DECOUPLED_DECAY, aliases=("wd",), minimum=0)

    def __post_init__(self) -> None:
        if self.adafactor_eps[0] < MIN_MOMENT_EPS:
            raise ValueError(
                f"--adafactor-eps {self.adafactor_eps[0]}: the first value must be at least {MIN_MOMENT_EPS}"
            )
