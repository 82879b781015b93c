"""What is done to the layers of any model: computing them anew for the gradient, compiling them, sharing them out.

A layer is an item of an nn.ModuleList that is called as a module.
"""

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from nmt.device import allow_graphs
from nmt.errors import UserError


def layers_of(module: nn.Module) -> list[nn.Module]:
    """The layers of a module, each once; what is inside a layer is not looked at."""
    found: list[nn.Module] = []
    for child in module.children():
        found += list(child) if isinstance(child, nn.ModuleList) else layers_of(child)
    return list(dict.fromkeys(found))


def recompute(model: nn.Module) -> None:
    """Keep of each layer its input alone, and compute the rest again for the gradient: the same bits in less memory.

    Raises UserError when the model has no layers.
    """
    for layer in _wanted(model, "--activation-checkpointing"):
        known: Any = layer
        known.forward = partial(_anew, layer.forward)


def _anew(forward: Any, *inputs: Any, **named: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs, **named)
    return checkpoint(forward, *inputs, use_reentrant=False, **named)


def compile_layers(model: nn.Module) -> None:
    """Compile each layer for lengths and sizes that vary: one graph for all of a kind. Raises UserError when it has none.

    A batch or a length of 1 makes a graph more; so does validation.
    """
    allow_graphs()
    for layer in _wanted(model, "--compile"):
        layer.compile(dynamic=True)


def graphs_compiled() -> int:
    """Graphs that torch has compiled in this process, those that were compiled again among them."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def _wanted(model: nn.Module, flag: str) -> list[nn.Module]:
    if not (layers := layers_of(model)):
        raise UserError(f"{flag}: works on a model's stacks of layers (nn.ModuleList), and this one has none")
    return layers
