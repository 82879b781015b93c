"""What every optimizer is: one of torch's, whose learning rate the trainer sets before each update.

A registered optimizer is built as `cls(options, parameters)` and is a `torch.optim.Optimizer`. It has no option for the
learning rate: `group["lr"]` of each of its `param_groups` is a plain float that the schedule gives.
"""

from collections.abc import Sequence
from typing import Final

from torch import nn

UNSET: Final = 0.0  # the learning rate before the schedule gives one: a forgotten schedule then changes no weight
FUSED_DEVICES: Final = {"cpu", "cuda"}


def can_fuse(parameters: Sequence[nn.Parameter]) -> bool:
    """Whether torch has one kernel that updates all of these at once; bit-reproducible, and the fastest there is."""
    return all(parameter.device.type in FUSED_DEVICES and parameter.is_floating_point() for parameter in parameters)


def check_weight_decay(weight_decay: float) -> None:
    """Raises ValueError for a negative one."""
    if not weight_decay >= 0:
        raise ValueError(f"weight_decay is {weight_decay}; it must be at least 0")


def check_adam(betas: tuple[float, float], eps: float, weight_decay: float) -> None:
    """Raises ValueError for values that Adam is not defined for."""
    if not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"adam_betas is {betas}; both must be at least 0 and below 1")
    if not eps > 0:
        raise ValueError(f"adam_eps is {eps}; it must be above 0")
    check_weight_decay(weight_decay)
