"""Alternatives at a position: behind a given prefix, each of the most probable next words, with the best translation of each."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmt import opt, register
from nmt.decoders.base import signature
from nmt.decoders.beam import Beam, BeamOptions, Beams, Continued
from nmt.decoders.filters import Constraints, leave_only
from nmt.symbols import PAD


@dataclass(frozen=True, kw_only=True)
class AlternativesOptions(BeamOptions):
    n_best: int = opt(5, "words to try behind the prefix; each gives one translation", aliases=("nbest",))

    @property
    def most(self) -> int:
        """As many beams as have room beside each other."""
        return 100


class _Alternatives(Beams):
    """A beam for each word that may follow the prefix, those of a sentence side by side."""

    def __init__(
        self, options: BeamOptions, limits: Sequence[int], source: Tensor, constraints: Sequence[Constraints]
    ) -> None:
        super().__init__(options, limits, source, options.n_best, options.beam_size, 1)
        given = torch.tensor([len(constraint.prefix) for constraint in constraints], device=source.device)
        self.given = given.repeat_interleave(self.groups)  # B

    def continued(self, log_probs: Tensor) -> Continued:
        """At the position itself each beam says the word that is its own. log_probs: (B, W, V)"""
        here = self.given[self.numbers] == self.said.shape[2]
        best = log_probs[:, 0].topk(min(self.groups, log_probs.shape[2])).indices
        best = pad(best, (0, self.groups - best.shape[1]), value=PAD)  # never said: those beams are dead
        own = (self.numbers % self.groups)[:, None]
        each = log_probs.shape[1]
        words, rows = best.gather(1, own).repeat(1, each).flatten(), here.repeat_interleave(each)
        leave_only(log_probs.view(-1, log_probs.shape[2]), words, rows)
        return super().continued(log_probs)


@register("decoder", "alternatives", AlternativesOptions)
class Alternatives(Beam):
    """The best translation with each of the most probable words behind a prefix."""

    def __init__(self, options: BeamOptions) -> None:
        super().__init__(options)
        self.paths = options.n_best * options.beam_size

    @property
    def signature(self) -> str:
        return signature("alternatives", self.options)

    def beams(self, limits: Sequence[int], source: Tensor, constraints: Sequence[Constraints]) -> Beams:
        """See Beam."""
        return _Alternatives(self.options, limits, source, constraints)
