"""The interface of optimizers: torch's optimizers, with learning rates that the trainer sets before each update.

A registered optimizer is built as `cls(options, parameters)` and is a `torch.optim.Optimizer`. `parameters` are torch's parameter
groups. Each has `name`, `lr_factor` and, if it differs from the optimizer's, `weight_decay`. The optimizer has no option for the
learning rate. Before each update the trainer sets `group["lr"]` of each of its `param_groups` to a float, the schedule's learning
rate times `group["lr_factor"]`. A group's `matrices` is a list with one bool per parameter: whether it is the weight of a linear
layer inside the network, or a parameter that its layer names in `matrices`. Layers that declare `is_recurrent` have no matrices.

An optimizer that averages the weights has, from its creation, the attribute `averaged`: a tensor per parameter, which its
steps change in place. The run validates and saves these averages, and also saves the weights at which gradients are computed.

An optimizer whose steps depend on the capabilities of the device has a method `agree(world)`. The run calls it before the
first update, so that all ranks make the same steps. It returns a description for the log.
"""

import inspect
from typing import Any, Final

import torch
from torch import nn

from nmt.dist import is_sharded
from nmt.errors import UserError
from nmt.models.base import Model

UNSET_LR: Final = 0.0  # learning rate until the schedule sets one; without a schedule, weights do not change

Groups = list[dict[str, Any]]


class Uncompiled(torch.optim.Optimizer):
    """Mixin that removes the wrappers for torch.compile from an optimizer's methods. List it before torch's class.

    The wrappers import the compiler, which takes 1.3 s of CPU time at the start of training.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict", "step"):
            method = getattr(cls, name)
            if method.__module__.startswith("torch."):
                plain = inspect.unwrap(method)
                setattr(cls, name, torch.no_grad()(plain) if name == "step" else plain)


def matrices_of(layer: nn.Module) -> list[Any]:
    """The parameters of a layer that optimizers may treat as matrices: the weight of a linear layer, or those in `matrices`."""
    names = ("weight",) if isinstance(layer, nn.Linear) else getattr(layer, "matrices", ())
    return [] if getattr(layer, "is_recurrent", False) else [layer._parameters.get(name) for name in names]


def parameter_groups(model: Model) -> Groups:
    """A model's groups of trainable parameters, in the form that torch's optimizers expect.

    Raises UserError unless each trainable parameter is in exactly one group.
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
            raise UserError(
                f"{type(model).__name__}: parameter '{name}' must be in exactly one parameter group, but is in {count}"
            )
    if not groups:
        raise UserError(f"{type(model).__name__} has no trainable parameters")
    return groups


def has_sharded(groups: Groups) -> bool:
    """Whether FSDP has sharded some of these parameters."""
    return any(is_sharded(parameter) for group in groups for parameter in group["params"])
