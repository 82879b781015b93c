"""Optimizers: torch's own, whose learning rates the trainer sets before each update.

A registered optimizer is built as `cls(options, parameters)` and is a `torch.optim.Optimizer`. `parameters` are torch's
parameter groups with `name`, `lr_factor` and, if it differs from the optimizer's, `weight_decay`. The optimizer has no
option for the learning rate: `group["lr"]` of each of its `param_groups` is a plain float, the schedule's learning rate
times `group["lr_factor"]`. `matrices` of a group tells of each of its parameters whether it is the weight of a linear
layer inside the network, or one of the parameters that its layer names in `matrices`. A layer that declares `is_recurrent` has
none.

An optimizer that averages the weights has `averaged`, from its creation: a tensor by parameter, which its steps change in
place. The run validates and saves these, and the weights that gradients are computed at beside them.

An optimizer that computes by what its device can do has `agree(world)`, which the run calls before the first update: all
ranks then make the same step. It returns how it computes, for the log.
"""

import inspect
from typing import Any, Final

import torch
from torch import nn

from nmt.dist import is_sharded
from nmt.errors import UserError
from nmt.models.base import Model

UNSET_LR: Final = 0.0  # until the schedule sets it, so that a forgotten schedule changes no weight

Groups = list[dict[str, Any]]


class Uncompiled(torch.optim.Optimizer):
    """Mixin, to stand before torch's class, that removes the wrappers for torch.compile from an optimizer's methods.

    They import the compiler, which takes 1.3 s of CPU time at the start of a training.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict", "step"):
            method = getattr(cls, name)
            if method.__module__.startswith("torch."):
                plain = inspect.unwrap(method)
                setattr(cls, name, torch.no_grad()(plain) if name == "step" else plain)


def matrices_of(layer: nn.Module) -> list[Any]:
    """The matrices of a layer that an optimizer may treat as such: its weight, if it is linear, or those of its `matrices`."""
    names = ("weight",) if isinstance(layer, nn.Linear) else getattr(layer, "matrices", ())
    return [] if getattr(layer, "is_recurrent", False) else [layer._parameters.get(name) for name in names]


def parameter_groups(model: Model) -> Groups:
    """A model's groups of trainable parameters as torch's optimizers take them.

    Raises UserError unless each trainable parameter is in one group.
    """
    groups: Groups = []
    linear = {id(matrix) for layer in model.modules() for matrix in matrices_of(layer)}
    linear -= {id(parameter) for parameter in model.output.parameters()}
    for group in model.parameter_groups():
        trainable = [parameter for parameter in group.parameters if parameter.requires_grad]
        decay = {} if group.weight_decay is None else {"weight_decay": group.weight_decay}
        if trainable:
            matrices = [id(parameter) in linear for parameter in trainable]
            named = {"name": group.name, "lr_factor": group.lr_factor, "matrices": matrices}
            groups.append({"params": trainable, **named, **decay})
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and (count := grouped.count(id(parameter))) != 1:
            raise UserError(f"{type(model).__name__}: parameter '{name}' is in {count} parameter groups, not in one")
    if not groups:
        raise UserError(f"{type(model).__name__}: has no trainable parameters")
    return groups


def has_sharded(groups: Groups) -> bool:
    """Whether FSDP has sharded some of these parameters."""
    return any(is_sharded(parameter) for group in groups for parameter in group["params"])
