"""Diverse beam search (Vijayakumar et al., 2016): groups of beams, each told to say other words than those before it.

At each step a group ranks its continuations by log-probability minus `diversity_strength` times how many hypotheses of the
groups before it say that word at this step (Hamming diversity). A hypothesis' own log-probability and score stay the model's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt import opt, register
from nmt.decoders.base import signature
from nmt.decoders.beam import Beam, BeamOptions, Beams, Continued, best_continuations
from nmt.decoders.filters import Constraints


@dataclass(frozen=True, kw_only=True)
class DiverseBeamOptions(BeamOptions):
    groups: int = opt(2, "groups that the beam is divided into, of equal size")
    diversity_strength: float = opt(
        0.5, "nats that a word loses for each hypothesis of a group before that says it now"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups < 1 or self.beam_size % self.groups:
            raise ValueError(f"groups is {self.groups}; it must divide beam_size, {self.beam_size}")
        if not self.diversity_strength >= 0:
            raise ValueError(f"diversity_strength is {self.diversity_strength}; it must be at least 0")


class _Groups(Beams):
    """A beam a group, those of a sentence side by side."""

    def __init__(self, options: DiverseBeamOptions, limits: Sequence[int], source: Tensor) -> None:
        size = options.beam_size // options.groups
        super().__init__(options, limits, source, options.groups, size, min(size, options.n_best))
        self.strength = options.diversity_strength

    def continued(self, log_probs: Tensor) -> Continued:
        """Group by group, each with a penalty for what those before it say."""
        size, penalty = self.scores.shape[1], log_probs.new_zeros(len(log_probs) // self.groups, log_probs.shape[2])
        found = []
        for group in range(self.groups):
            one = best_continuations(log_probs[group :: self.groups], self.totals[group :: self.groups], size, penalty)
            penalty = penalty.scatter_add(1, one.words, torch.full_like(one.totals, self.strength))
            found.append(one)
        return Continued(*(torch.stack(parts, 1).flatten(0, 1) for parts in zip(*found, strict=True)))


@register("decoder", "diverse-beam", DiverseBeamOptions)
class DiverseBeam(Beam):
    """Beam search in groups that are told to differ."""

    options: DiverseBeamOptions

    @property
    def signature(self) -> str:
        return signature("diverse-beam", self.options)

    def beams(self, limits: Sequence[int], source: Tensor, constraints: Sequence[Constraints]) -> Beams:
        """See Beam."""
        return _Groups(self.options, limits, source)
