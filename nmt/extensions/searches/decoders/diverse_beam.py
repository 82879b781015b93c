"""Diverse beam search (Vijayakumar et al., 2016): groups of beams, each penalised for the tokens of the groups before it.

At each step a group ranks its continuations by log-probability minus `diversity_strength` times the number of hypotheses
of earlier groups that continue with that token (Hamming diversity). Log-probabilities and scores stay the model's.
"""

from typing import Any, cast

import torch
from torch import Tensor

from nmt import register
from nmt.decoders.beam import Beam, Beams, Continuations, best_continuations
from nmt.extensions.searches.decoders.options import DiverseBeamOptions


class _Groups(Beams):
    """A beam per group, those of a sentence side by side."""

    @staticmethod
    def shape(options: Any) -> tuple[int, int, int]:
        size = options.beam_size // options.groups
        return options.groups, size, min(size, options.n_best)

    def continuations(self, log_probs: Tensor) -> Continuations:
        """See Beams; group by group, each penalised for the tokens of the groups before it."""
        size, penalty = self.scores.shape[1], log_probs.new_zeros(len(log_probs) // self.groups, log_probs.shape[2])
        strength, of_groups = cast(DiverseBeamOptions, self.options).diversity_strength, []
        for group in range(self.groups):
            of_group = best_continuations(
                log_probs[group :: self.groups], self.totals[group :: self.groups], size, penalty, self.options.prune
            )
            penalty = penalty.scatter_add(1, of_group.tokens, torch.full_like(of_group.totals, strength))
            of_groups.append(of_group)
        return Continuations(*(torch.stack(parts, 1).flatten(0, 1) for parts in zip(*of_groups, strict=True)))


@register("decoder", "diverse-beam", DiverseBeamOptions)
class DiverseBeam(Beam):
    """Beam search in groups that are penalised for equal words."""

    beams = _Groups
