"""Wrapping the layers of any model: activation checkpointing and compilation.

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
    """The layers of a module, each once, without the layers inside a layer."""
    layers: list[nn.Module] = []
    for child in module.children():
        layers += list(child) if isinstance(child, nn.ModuleList) else layers_of(child)
    return list(dict.fromkeys(layers))


def recompute(model: nn.Module) -> None:
    """Keep only the input of each layer and recompute the rest for the gradient; UserError if the model has no layers."""
    layer: Any
    for layer in _required_layers(model, "--activation-checkpointing"):
        layer.forward = partial(_checkpointed, layer.forward)


def _checkpointed(forward: Any, *inputs: Any, **named: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs, **named)
    return checkpoint(forward, *inputs, use_reentrant=False, **named)


def compile_layers(model: nn.Module) -> None:
    """Compile each layer for varying lengths and batch sizes, one graph for each kind of layer.

    A batch or a length of 1, and validation, need further graphs. Raises UserError when the model has no layers.
    """
    allow_graphs()
    for layer in _required_layers(model, "--compile"):
        layer.compile(dynamic=True)


def graphs_compiled() -> int:
    """Number of graphs that torch has compiled in this process, recompilations counted."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def _required_layers(model: nn.Module, flag: str) -> list[nn.Module]:
    if not (layers := layers_of(model)):
        raise UserError(f"{flag}: needs a model whose layers are in an nn.ModuleList (leave it out)")
    return layers
