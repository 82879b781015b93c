"""Training low-rank adapters of linear layers (Hu et al., 2021, section 4.1); nmt.nn.lora adds them to a model.

Dimensions: D inputs, E outputs, r rank.
"""

import math
from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.utils import parametrize


class LowRank(nn.Module):
    """A weight (E, D) plus the product of two trained matrices of rank r, which is 0 at first.

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
    """The linear layers that can have an adapter, by the name of their weight: one that nothing else uses or computes."""
    names = [id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False)]
    layers = ((f"{name}.weight", layer) for name, layer in model.named_modules() if isinstance(layer, nn.Linear))
    return {
        name: layer
        for name, layer in layers
        if not parametrize.is_parametrized(layer, "weight") and names.count(id(layer.weight)) == 1
    }


def add_adapters(model: nn.Module, layers: Iterable[nn.Linear], rank: int, scale: float) -> None:
    """Give layers an adapter each, and freeze all else of the model."""
    model.requires_grad_(False)
    for layer in layers:
        adapter = LowRank(layer.weight, rank, scale)
        parametrize.register_parametrization(layer, "weight", adapter)
