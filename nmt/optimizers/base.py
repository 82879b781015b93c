"""Optimizers: torch's own, whose learning rates the trainer sets before each update.

A registered optimizer is built as `cls(options, parameters)` and is a `torch.optim.Optimizer`. `parameters` are torch's
parameter groups with `name`, `lr_factor` and, if it differs from the optimizer's, `weight_decay`. The optimizer has no
option for the learning rate: `group["lr"]` of each of its `param_groups` is a plain float, the schedule's learning rate
times `group["lr_factor"]`.
"""

import inspect
from typing import Any, Final

import torch

from nmt.dist import is_sharded
from nmt.errors import UserError
from nmt.models.base import Model

UNSET_LR: Final = 0.0  # until the schedule sets it, so that a forgotten schedule changes no weight
FUSED_DEVICES: Final = {"cpu", "cuda"}

Groups = list[dict[str, Any]]


class Uncompiled(torch.optim.Optimizer):
    """Base class of an optimizer before torch's own: its methods are those that torch wraps for torch.compile.

    The wrappers import the compiler, which takes more than a second at the start of each training, and nothing compiles an
    optimizer here.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.step = torch.no_grad()(inspect.unwrap(cls.step))  # type: ignore[method-assign]


def parameter_groups(model: Model) -> Groups:
    """A model's groups of trainable parameters as torch's optimizers take them.

    Raises UserError unless each trainable parameter is in one group.
    """
    groups: Groups = []
    for group in model.parameter_groups():
        trainable = [parameter for parameter in group.parameters if parameter.requires_grad]
        decay = {} if group.weight_decay is None else {"weight_decay": group.weight_decay}
        if trainable:
            groups.append({"params": trainable, "name": group.name, "lr_factor": group.lr_factor, **decay})
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and (count := grouped.count(id(parameter))) != 1:
            raise UserError(f"{type(model).__name__}: parameter '{name}' is in {count} parameter groups, not in one")
    if not groups:
        raise UserError(f"{type(model).__name__}: has no trainable parameters")
    return groups


def can_fuse(groups: Groups) -> bool:
    """Whether torch has a fused kernel for these parameters: the fastest, and bit-reproducible."""
    tensors = [parameter for group in groups for parameter in group["params"]]
    return all(tensor.device.type in FUSED_DEVICES and tensor.is_floating_point() for tensor in tensors)


def has_sharded(groups: Groups) -> bool:
    """Whether FSDP has sharded some of these parameters."""
    return any(is_sharded(parameter) for group in groups for parameter in group["params"])
