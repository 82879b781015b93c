"""An average of a model's weights over the updates, which is validated and saved instead of the weights."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class WeightAverage:
    """An average of a model's trained parameters, in their number format, computed by the optimizer.

    averaged: the average of each parameter, from the optimizer
    weights: the averages by parameter name; equal to the parameters until the first update
    flag: the flag that requests the average
    note: a log line about the average at the start of a run, or empty
    """

    note = ""

    def __init__(self, model: nn.Module, averaged: Mapping[nn.Parameter, Tensor], flag: str) -> None:
        self.flag = flag
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.parameters = {name: parameter.detach() for name, parameter in trained.items()}
        self.weights = {name: averaged[parameter] for name, parameter in trained.items()}

    @torch.no_grad()
    def restart(self) -> None:
        """Restart the average from the current weights."""
        for name, average in self.weights.items():
            average.copy_(self.parameters[name])

    def update(self, number: int) -> None:
        """Add the weights to the average; in this class the optimizer has already done so.

        number: number of the update, not counting skipped ones
        """
