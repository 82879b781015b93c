"""A start: all matrices of a new model become orthogonal before training (Saxe et al., 2014).

nmt train --plugin my_start.py --my-start 1.0 --data DATA --output RUN
nmt status RUN
"""

from typing import Any

import torch
from torch import nn

from nmt import opt, options_class, register
from nmt.models.base import Model
from nmt.starts.base import Start


@options_class
class MyStartOptions:  # the start is in use when one of its options differs from its default
    my_start: float = opt(0.0, "scale of orthogonal initial matrices; 0 disables them", minimum=0, group="Fine-tuning")


@register("start", "my-start", MyStartOptions)
class MyStart(Start):
    """Orthogonal matrices in a new model."""

    def change(self, model: Model) -> None:
        """Called after a model is built, even for a resumed run. Parameters may be replaced or frozen here."""

    def begin(self, run: Any) -> None:
        """Called once, when a new run is built. Weights set here are not set again when the run resumes."""
        generator = torch.Generator(device="cpu").manual_seed(run.options.seed)
        for parameter in run.model.parameters():
            if parameter.dim() == 2 and parameter.requires_grad:  # CHANGE: which weights, and how
                matrix = torch.empty(parameter.shape)
                nn.init.orthogonal_(matrix, gain=self.options.my_start, generator=generator)
                with torch.no_grad():
                    parameter.copy_(matrix)
