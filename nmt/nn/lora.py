"""Low-rank adapters of linear layers (Hu et al., 2021, section 4.1): their names in files, and their sums with a model.

A layer with the weight W computes with W + alpha / r * B A, of which only A and B are trained.
Dimensions: D inputs, E outputs, r rank.
"""

from collections.abc import Mapping
from typing import Final

from torch import Tensor

# How torch's parametrization ends the name of each matrix. PLAIN_ENDINGS has the endings in model folders and adapters.
BASE: Final = ".parametrizations.weight.original"  # W
DOWN: Final = ".parametrizations.weight.0.down"  # A
UP: Final = ".parametrizations.weight.0.up"  # B
PLAIN_ENDINGS: Final = {BASE: ".weight", DOWN: ".weight.down", UP: ".weight.up"}


def plain_name(name: str) -> str:
    """The name of a parameter in the model without adapters, or in an adapter."""
    for ending, plain in PLAIN_ENDINGS.items():
        if name.endswith(ending):
            return name.removesuffix(ending) + plain
    return name


def merged(weights: Mapping[str, Tensor], adapter: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """The weights of a model with an adapter added, by the names of the model.

    adapter: matrices up (E, r) and down (r, D) of weights (E, D), and buffers in place of the model's
    Raises ValueError for an adapter whose names or shapes do not fit the model.
    """
    ups, downs = (
        {name.removesuffix(end): tensor for name, tensor in adapter.items() if name.endswith(f".weight{end}")}
        for end in (".up", ".down")
    )
    buffers = {name: tensor for name, tensor in adapter.items() if not name.endswith((".weight.up", ".weight.down"))}
    for name in sorted((ups.keys() | downs.keys() | buffers.keys()) - weights.keys()):
        raise ValueError(f"the model has no '{name}'")
    for name in sorted(ups.keys() ^ downs.keys()):
        raise ValueError(f"'{name}' has one of the two matrices")
    for name in ups:
        weight, up, down = (tuple(tensor.shape) for tensor in (weights[name], ups[name], downs[name]))
        if not (len(up) == len(down) == 2 and up[1] == down[0] and (up[0], down[1]) == weight):
            raise ValueError(f"'{name}' is {weight} in the model, and its matrices {up} and {down}")
    for name, tensor in buffers.items():
        if tensor.shape != weights[name].shape:
            raise ValueError(f"'{name}' is {tuple(tensor.shape)}, expected {tuple(weights[name].shape)}")
    return {**weights, **buffers} | {name: weights[name] + scale * (up @ downs[name]) for name, up in ups.items()}
