"""Keeps a moving average of the weights, which is validated, saved and used for translation."""

import torch
from torch import Tensor, nn

from nmt import register
from nmt.dist import local_tensor
from nmt.extensions.methods.starts.options import MovingAverageOptions
from nmt.starts.base import Start
from nmt.train.weight_average import WeightAverage


@register("start", "moving-average", MovingAverageOptions)
class AveragedStart(Start):
    """A moving average of the weights is validated and saved instead of the weights themselves."""

    def average(self, model: nn.Module) -> WeightAverage:
        """See Start."""
        return MovingAverage(model, self.options.ema)


class MovingAverage(WeightAverage):
    """An exponential moving average (Polyak and Juditsky, 1992). Each rank averages its own shards of sharded parameters.

    After the n-th update that changed the weights: average = d * average + (1 - d) * weights, with
    d = min(decay, (1 + n) / (10 + n)), so that the first weights are soon forgotten. This is the rule of TensorFlow's
    ExponentialMovingAverage, which Tensor2Tensor uses, and of Marian's --exponential-smoothing.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__(
            model,
            {parameter: parameter.detach().clone() for parameter in model.parameters() if parameter.requires_grad},
            "--ema",
        )
        self.decay = decay
        self.note = f"--ema {decay:g}: validations and checkpoints use the moving average of the weights"

    @torch.no_grad()
    def update(self, number: int) -> None:
        """Update the average with the weights. number: n, the number of updates applied so far"""
        decay = min(self.decay, (1 + number) / (10 + number))
        torch._foreach_lerp_(_local(self.weights), _local(self.parameters), 1 - decay)


def _local(tensors: dict[str, Tensor]) -> list[Tensor]:
    return [local_tensor(tensor) for tensor in tensors.values()]
