"""An exponential moving average of a model's weights over the updates (Polyak and Juditsky, 1992)."""

import torch
from torch import Tensor, nn

from nmt.dist import local_tensor


class MovingAverage:
    """The moving average of a model's parameters, in their number format; of sharded ones each rank averages its shards.

    After the n-th update that changed the weights: average = d * average + (1 - d) * weights, with
    d = min(decay, (1 + n) / (10 + n)), so that it forgets the first weights early. This is the rule of TensorFlow's
    ExponentialMovingAverage, which Tensor2Tensor uses, and of Marian's --exponential-smoothing.

    weights: the average by name of the parameter; the parameters themselves until the first update
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
        self.weights = {name: parameter.clone() for name, parameter in self.parameters.items()}

    @torch.no_grad()
    def restart(self) -> None:
        """Begin the average at the current weights."""
        for name, average in self.weights.items():
            average.copy_(self.parameters[name])

    @torch.no_grad()
    def update(self, number: int) -> None:
        """Take the weights into the average. number: of the update, n; skipped ones do not count"""
        decay = min(self.decay, (1 + number) / (10 + number))
        torch._foreach_lerp_(_local(self.weights), _local(self.parameters), 1 - decay)


def _local(tensors: dict[str, Tensor]) -> list[Tensor]:
    return [local_tensor(tensor) for tensor in tensors.values()]
