"""Averages of a model's weights over the updates, which are validated and saved in place of them."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from nmt.dist import local_tensor


class WeightAverage:
    """An average of a model's trained parameters, in their number format, which the optimizer computes.

    averaged: by parameter, from the optimizer
    weights: the average by name of the parameter; the parameters themselves until the first update
    """

    def __init__(self, model: nn.Module, averaged: Mapping[nn.Parameter, Tensor]) -> None:
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.parameters = {name: parameter.detach() for name, parameter in trained.items()}
        self.weights = {name: averaged[parameter] for name, parameter in trained.items()}

    @torch.no_grad()
    def restart(self) -> None:
        """Begin the average at the current weights."""
        for name, average in self.weights.items():
            average.copy_(self.parameters[name])

    def update(self, number: int) -> None:
        """Take the weights into the average, which the optimizer has done. number: of the update; skipped ones do not count"""


class MovingAverage(WeightAverage):
    """An exponential moving average (Polyak and Juditsky, 1992); of sharded parameters each rank averages its shards.

    After the n-th update that changed the weights: average = d * average + (1 - d) * weights, with
    d = min(decay, (1 + n) / (10 + n)), so that it forgets the first weights early. This is the rule of TensorFlow's
    ExponentialMovingAverage, which Tensor2Tensor uses, and of Marian's --exponential-smoothing.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__(
            model,
            {parameter: parameter.detach().clone() for parameter in model.parameters() if parameter.requires_grad},
        )
        self.decay = decay

    @torch.no_grad()
    def update(self, number: int) -> None:
        """Take the weights into the average. number: of the update, n; skipped ones do not count"""
        decay = min(self.decay, (1 + number) / (10 + number))
        torch._foreach_lerp_(_local(self.weights), _local(self.parameters), 1 - decay)


def _local(tensors: dict[str, Tensor]) -> list[Tensor]:
    return [local_tensor(tensor) for tensor in tensors.values()]
