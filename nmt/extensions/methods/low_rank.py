"""Low-rank adapters for linear layers (Hu et al., 2021, section 4.1): training, names in files, and merging into a model.

A layer with the weight W uses W + alpha / r * B A instead. Only A and B are trained.
Dimensions: D inputs, E outputs, r rank.
"""

import math
from collections.abc import Mapping
from typing import Final

from torch import Tensor, nn
from torch.nn.utils import parametrize

# Suffixes that torch's parametrization adds to names. PLAIN_ENDINGS has the suffixes used in model folders and adapters.
BASE: Final = ".parametrizations.weight.original"  # W
DOWN: Final = ".parametrizations.weight.0.down"  # A
UP: Final = ".parametrizations.weight.0.up"  # B
PLAIN_ENDINGS: Final = {BASE: ".weight", DOWN: ".weight.down", UP: ".weight.up"}


class LowRank(nn.Module):
    """A weight (E, D) plus the product, initially 0, of two trained matrices of rank r.

    matrices: see nmt.optimizers.base
    """

    matrices = ("down", "up")

    def __init__(self, weight: Tensor, rank: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.down = nn.Parameter(weight.new_empty(rank, weight.shape[1]))
        self.up = nn.Parameter(weight.new_zeros(len(weight), rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.scale * (self.up @ self.down)


def adaptable(model: nn.Module) -> dict[str, nn.Linear]:
    """Linear layers that can have an adapter, keyed by the name of their weight, which must be neither shared nor computed."""
    names = [id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False)]
    layers = ((f"{name}.weight", layer) for name, layer in model.named_modules() if isinstance(layer, nn.Linear))
    return {
        name: layer
        for name, layer in layers
        if not parametrize.is_parametrized(layer, "weight") and names.count(id(layer.weight)) == 1
    }


def plain_name(name: str) -> str:
    """The name that a parameter has in a model without adapters, or in an adapter file."""
    for ending, plain in PLAIN_ENDINGS.items():
        if name.endswith(ending):
            return name.removesuffix(ending) + plain
    return name


def merged(weights: Mapping[str, Tensor], adapter: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """The weights of a model with an adapter merged into it, under the names of the model.

    adapter: matrices up (E, r) and down (r, D) for weights (E, D), and buffers that replace the model's
    Raises ValueError if names or shapes of the adapter do not fit the model.
    """
    ups, downs = (
        {name.removesuffix(end): tensor for name, tensor in adapter.items() if name.endswith(f".weight{end}")}
        for end in (".up", ".down")
    )
    buffers = {name: tensor for name, tensor in adapter.items() if not name.endswith((".weight.up", ".weight.down"))}
    for name in sorted((ups.keys() | downs.keys() | buffers.keys()) - weights.keys()):
        raise ValueError(f"the model has no '{name}'")
    for name in sorted(ups.keys() ^ downs.keys()):
        raise ValueError(f"the adapter of '{name}' has only one of its two matrices")
    for name in ups:
        weight, up, down = (tuple(tensor.shape) for tensor in (weights[name], ups[name], downs[name]))
        if not (len(up) == len(down) == 2 and up[1] == down[0] and (up[0], down[1]) == weight):
            raise ValueError(
                f"'{name}' has shape {weight} in the model, but the low-rank matrices have shapes {up} and {down}"
            )
    for name, tensor in buffers.items():
        if tensor.shape != weights[name].shape:
            raise ValueError(f"'{name}' has shape {tuple(tensor.shape)}, expected {tuple(weights[name].shape)}")
    return {**weights, **buffers} | {name: weights[name] + scale * (up @ downs[name]) for name, up in ups.items()}
