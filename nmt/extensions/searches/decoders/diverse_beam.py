"""Diverse beam search (Vijayakumar et al., 2016): each group of beams is penalised for the tokens of earlier groups.

At each step, a group ranks its continuations by log-probability minus `diversity_strength` times the number of hypotheses
of earlier groups that continue with that token (Hamming diversity). Reported log-probabilities and scores exclude the penalty.
"""

from typing import Any, cast

import torch
from torch import Tensor

from nmt import register
from nmt.decoders.beam import Beam, Beams, Continuations, best_continuations
from nmt.extensions.searches.decoders.options import DiverseBeamOptions


class _Groups(Beams):
    """One beam per group. The beams of each sentence are adjacent."""

    @staticmethod
    def shape(options: Any) -> tuple[int, int, int]:
        size = options.beam_size // options.groups
        return options.groups, size, min(size, options.n_best)

    def continuations(self, log_probs: Tensor) -> Continuations:
        """See Beams. Groups are processed in order, each with a penalty for the tokens of earlier groups."""
        size, penalty = self.scores.shape[1], log_probs.new_zeros(len(log_probs) // self.groups, log_probs.shape[2])
        strength, results = cast(DiverseBeamOptions, self.options).diversity_strength, []
        for group in range(self.groups):
            result = best_continuations(
                log_probs[group :: self.groups], self.totals[group :: self.groups], size, penalty, self.options.prune
            )
            penalty = penalty.scatter_add(1, result.tokens, torch.full_like(result.totals, strength))
            results.append(result)
        return Continuations(*(torch.stack(parts, 1).flatten(0, 1) for parts in zip(*results, strict=True)))


@register("decoder", "diverse-beam", DiverseBeamOptions)
class DiverseBeam(Beam):
    """Beam search in groups, each of which is penalised for the tokens of earlier groups."""

    beams = _Groups
