"""A mixer of the Transformer: each position adds a decaying sum of earlier positions, in place of self-attention.

    nmt train --plugin my_mixer.py --decoder-autoregression my-mixer --data DATA --output RUN
    nmt translate --plugin my_mixer.py --model RUN --input TEXT

Dimensions: B sentences, T positions, N hypotheses of all sentences, D width.
"""

from typing import Any

import torch
from torch import Tensor

from nmt import opt, options_class, register
from nmt.mixers.base import FirstPast, Mixer, MixerStep, Past
from nmt.nn.attention import AttentionShape
from nmt.nn.linear import Linear


@options_class
class MyMixerOptions:  # CHANGE: each option becomes a flag; its name must differ from all options of the Transformer
    my_mixer: float = opt(0.5, "share of the running sum that each position keeps", minimum=0, below=1)


@register("mixer", "my-mixer", MyMixerOptions)
class MyMixer(Mixer):
    """A weighted sum of this position and all earlier ones."""

    def __init__(self, options: Any, shape: AttentionShape) -> None:
        super().__init__()
        self.share, self.width = options.my_mixer, shape.width
        self.values = Linear(shape.width, shape.width)

    def forward(self, states: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Training: all positions at once, (B, T, D) to (B, T, D). In a decoder, no position may see a later one."""
        sums: list[Tensor] = []
        for value in self.values(states).unbind(1):  # CHANGE: how positions are combined
            sums.append(value + self.share * sums[-1] if sums else value)
        return torch.stack(sums, 1)

    def begin(self, memory: Tensor, dtype: torch.dtype) -> FirstPast:
        """Search: the initial past, with values per sentence and per hypothesis. memory: (B, S, D)"""
        return FirstPast({}, {"sum": memory.new_zeros(len(memory), self.width)})

    def search_step(self) -> MixerStep:
        """Search: a function that computes the next position, (N, D) to (N, D), and the new past."""
        project = self.values.search_step()

        def step(states: Tensor, past: Past, length: Any) -> tuple[Tensor, Past]:
            total = project(states) + self.share * past["sum"]
            return total.clone(), {"sum": total}  # a copy, because the caller may write into the output

        return step
