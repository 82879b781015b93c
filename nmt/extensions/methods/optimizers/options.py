"""The options of optimizers beyond Adam. Without torch, so that `--help` answers at once."""

from typing import Final

from nmt import opt, options_class
from nmt.optimizers.options import DECOUPLED_DECAY, MIN_EPS, AdamOptions, AdamWOptions

MIN_MOMENT_EPS: Final = 1e-18  # torch squares it in float32: a smaller one would divide 0 by 0 for unused embeddings


@options_class
class MuonOptions(AdamWOptions):
    momentum: float = opt(
        0.95, "share of the mean gradient of matrices kept in the next, with Nesterov's look ahead", minimum=0, below=1
    )


@options_class
class ScheduleFreeOptions(AdamOptions):
    adam_betas: tuple[float, float] = opt(
        (0.9, 0.999),
        "share of the average in the weights that gradients are computed at, and decay of the second moment",
        minimum=0,
        below=1,
    )
    adam_eps: float = opt(1e-8, "added to the root of the second moment", minimum=MIN_EPS)
    weight_decay: float = opt(0.0, DECOUPLED_DECAY, aliases=("wd",), minimum=0)


@options_class
class AdamSgdOptions(AdamOptions):
    adam_betas: tuple[float, float] = opt(
        (0.9, 0.999), "decay of the gradient's first and second moments", minimum=0, below=1
    )
    adam_eps: float = opt(1e-8, "added to the root of the second moment", minimum=MIN_EPS)
    adam_updates: int = opt(60_000, "updates by Adam, before those by gradient descent; 60,000 in GNMT", minimum=0)
    sgd_lr_factor: float = opt(
        2500.0,
        "factor of the schedule's learning rate in gradient descent; 2500 is GNMT's 0.5 after 2e-4",
        above=0,
    )


@options_class
class AdadeltaOptions:
    adadelta_rho: float = opt(0.95, "decay of the running means of squares", minimum=0, below=1)
    adadelta_eps: float = opt(1e-6, "added to the means of squares before the root", minimum=MIN_EPS)
    weight_decay: float = opt(0.0, "L2 penalty added to the gradient", aliases=("wd",), minimum=0)


@options_class
class SgdOptions:
    momentum: float = opt(0.0, "share of the last step kept in the next; 0 is plain descent", minimum=0, below=1)
    nesterov: bool = opt(False, "look ahead along the momentum before the step (Nesterov, 1983)")
    weight_decay: float = opt(0.0, "L2 penalty added to the gradient", aliases=("wd",), minimum=0)

    def __post_init__(self) -> None:
        if self.nesterov and self.momentum == 0:
            raise ValueError("--nesterov: looks ahead along the momentum, which is 0 (give --momentum 0.9)")


@options_class
class AdafactorOptions:
    adafactor_beta2_decay: float = opt(
        -0.8, "power c of 1 - update^c, the decay of the second moment; -0.8 in the paper", maximum=0
    )
    adafactor_eps: tuple[float, float] = opt(
        (1e-15, 1e-3),
        "least root of the second moment (1e-15 is the paper's 1e-30 before the root), "
        "and least root mean square of a matrix that scales its step",
        above=0,
    )
    adafactor_clip: float = opt(
        1.0, "greatest root mean square of a matrix's step before scaling, d in the paper", minimum=1
    )
    weight_decay: float = opt(0.0, DECOUPLED_DECAY, aliases=("wd",), minimum=0)

    def __post_init__(self) -> None:
        if self.adafactor_eps[0] < MIN_MOMENT_EPS:
            raise ValueError(f"--adafactor-eps {self.adafactor_eps[0]}: the first must be at least {MIN_MOMENT_EPS}")
