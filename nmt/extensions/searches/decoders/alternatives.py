"""Alternatives at a position: the most probable tokens after a given prefix, each with the best translation that it leads to."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmt import register
from nmt.decoders.beam import Beam, Beams, Continuations
from nmt.decoders.filters import leave_only
from nmt.decoders.hypothesis import Constraints
from nmt.extensions.searches.decoders.options import AlternativesOptions
from nmt.symbols import PAD


class _Alternatives(Beams):
    """One beam for each token that may follow the prefix. The beams of each sentence are adjacent."""

    def begin(self, constraints: Sequence[Constraints]) -> None:
        lengths = torch.tensor([len(constraint.prefix) for constraint in constraints], device=self.limits.device)
        self.prefix_lengths = lengths.repeat_interleave(self.groups)  # one per beam

    @staticmethod
    def shape(options: Any) -> tuple[int, int, int]:
        return options.n_best, options.beam_size, 1

    def continuations(self, log_probs: Tensor) -> Continuations:
        """See Beams. Right after the prefix, each beam may continue only with its own token. log_probs: (B, W, V)"""
        _, W, V = log_probs.shape
        at_prefix_end = self.prefix_lengths[self.numbers] == self.tokens.shape[2]  # B
        best = log_probs[:, 0].topk(min(self.groups, V)).indices
        best = pad(best, (0, self.groups - best.shape[1]), value=PAD)  # PAD is forbidden, so these beams yield nothing
        tokens = best.gather(1, (self.numbers % self.groups)[:, None])  # B 1
        leave_only(log_probs.view(-1, V), tokens.repeat(1, W).flatten(), at_prefix_end.repeat_interleave(W))
        return super().continuations(log_probs)


@register("decoder", "alternatives", AlternativesOptions)
class Alternatives(Beam):
    """Finds the best translation for each of the words that are most probable after a prefix."""

    beams = _Alternatives
