"""Beam search that contains given phrases (after Post and Vilar, 2018): places of the beam for hypotheses that have met more.

A step's candidates are the best continuations, the best of each hypothesis, and every token by which a hypothesis goes on
with a phrase. The W places of the beam go round the banks - hypotheses that have said as many tokens of phrases as each other -
from the fullest bank down, the best of each first. Nothing ends before its phrases are met, and when no more tokens are left
than they need, only theirs may follow.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmt import register
from nmt.decoders.base import signature
from nmt.decoders.beam import Beam, BeamOptions, Beams, Continued
from nmt.decoders.filters import Constraints
from nmt.symbols import EOS

Phrase = tuple[int, ...]
Candidate = tuple[float, int, int]
"""(nats of the whole hypothesis, the one it goes on from, the word)."""


@dataclass(frozen=True, kw_only=True)
class ConstrainedBeamOptions(BeamOptions):
    pass


@dataclass(frozen=True)
class Progress:
    """How far a hypothesis is. unmet: phrases still to be said; begun: the tokens of one of them that were said last"""

    unmet: frozenset[Phrase]
    begun: Phrase = ()

    @classmethod
    def towards(cls, phrases: Sequence[Phrase]) -> "Progress":
        """At the start; what is a part of another phrase is met with it."""
        return cls(
            frozenset(one for one in phrases if not any(one != other and _inside(one, other) for other in phrases))
        )

    @property
    def remaining(self) -> int:
        """Tokens that are still to be said."""
        return sum(map(len, self.unmet)) - len(self.begun)

    def next_tokens(self) -> set[int]:
        """The tokens that lead on."""
        n = len(self.begun)
        return {phrase[n] for phrase in self.unmet if phrase[:n] == self.begun}

    def after(self, token: int) -> "Progress":
        """Having said a token: a phrase that is broken off has to be begun again."""
        for begun in ((*self.begun, token), (token,)):
            if begun in self.unmet:
                return Progress(self.unmet - {begun})
            if any(phrase[: len(begun)] == begun for phrase in self.unmet):
                return Progress(self.unmet, begun)
        return Progress(self.unmet)


def _inside(part: Phrase, whole: Phrase) -> bool:
    return any(whole[i : i + len(part)] == part for i in range(len(whole) - len(part) + 1))


class _Banks(Beams):
    """Beams whose hypotheses know how far they are. progress: of each beam, of each hypothesis"""

    def __init__(
        self, options: BeamOptions, limits: Sequence[int], source: Tensor, constraints: Sequence[Constraints]
    ) -> None:
        super().__init__(options, limits, source, 1, options.beam_size, options.n_best)
        self.progress = [[Progress.towards(constraint.phrases)] for constraint in constraints]

    def continued(self, log_probs: Tensor) -> Continued:
        """A sentence at a time."""
        rows = [self._of_sentence(number, log_probs[number]) for number in range(len(log_probs))]
        return Continued(*(torch.stack(parts) for parts in zip(*rows, strict=True)))

    def keep(self, kept: Tensor) -> None:
        super().keep(kept)
        self.progress = [self.progress[number] for number in kept.tolist()]

    def _of_sentence(self, number: int, log_probs: Tensor) -> Continued:
        """How one sentence's hypotheses go on, as rows of Continued. log_probs: (W, V)"""
        size, progress = self.scores.shape[1], self.progress[number]
        left = int(self.limits[number]) - self.said.shape[2]  # tokens that may still be said
        for row, one in zip(log_probs, progress, strict=True):
            _restrict(row, one, left)
        scores = log_probs + self.totals[number, :, None]  # W V
        ended, ended_from = _ended(scores, progress, size)
        scores[:, EOS] = -math.inf
        chosen = _round_the_banks(_candidates(scores, progress, size), progress, size)
        chosen += [(-math.inf, 0, EOS)] * (size - len(chosen))
        self.progress[number] = [progress[parent].after(word) for _, parent, word in chosen]
        totals, parents, words = (torch.tensor(column, device=scores.device) for column in zip(*chosen, strict=True))
        return Continued(ended, ended_from, totals, parents, words)


def _ended(scores: Tensor, progress: Sequence[Progress], size: int) -> tuple[Tensor, Tensor]:
    """What ends, and which hypotheses it goes on from, (size,) both: of the best continuations of those that have met all."""
    V = scores.shape[1]
    complete = torch.tensor([not one.remaining for one in progress], device=scores.device)
    values, places = scores.masked_fill(~complete[:, None], -math.inf).flatten().topk(min(size, scores.numel()))
    missing = size - len(values)
    ended = values.masked_fill(places % V != EOS, -math.inf)
    return pad(ended, (0, missing), value=-math.inf), pad(places // V, (0, missing))


def _restrict(log_probs: Tensor, progress: Progress, left: int) -> None:
    """No end before all is met; nothing but what leads on when there is no time for anything else. log_probs: (V,)"""
    remaining = progress.remaining
    if remaining:
        log_probs[EOS] = -math.inf
    if remaining and left <= remaining:
        leading = torch.tensor(sorted(progress.next_tokens()), device=log_probs.device)
        kept = log_probs[leading]
        log_probs.fill_(-math.inf)
        log_probs[leading] = kept


def _candidates(scores: Tensor, progress: Sequence[Progress], size: int) -> list[Candidate]:
    """The best `size` continuations, the best of each hypothesis, and all that lead on; the best first."""
    V = scores.shape[1]
    places = set(scores.flatten().topk(min(size, scores.numel())).indices.tolist())
    places |= {parent * V + word for parent, word in enumerate(scores.argmax(1).tolist())}
    places |= {parent * V + word for parent, one in enumerate(progress) for word in one.next_tokens()}
    order = sorted(places)
    totals = scores.flatten()[torch.tensor(order, device=scores.device)].tolist()
    found = [(total, *divmod(place, V)) for total, place in zip(totals, order, strict=True) if total > -math.inf]
    return sorted(found, key=lambda one: -one[0])


def _round_the_banks(candidates: Sequence[Candidate], progress: Sequence[Progress], size: int) -> list[Candidate]:
    """`size` candidates, the best first: one of each bank in turn, those that have met the most before the others."""
    banks: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        _, parent, word = candidate
        banks[progress[parent].after(word).remaining].append(candidate)
    fullest_first = [banks[remaining] for remaining in sorted(banks)]
    in_turn = [one for place in zip_longest(*fullest_first) for one in place if one is not None]
    return sorted(in_turn[:size], key=lambda one: -one[0])


@register("decoder", "constrained-beam", ConstrainedBeamOptions)
class ConstrainedBeam(Beam):
    """Beam search whose translations contain given phrases."""

    takes_phrases = True

    @property
    def signature(self) -> str:
        return signature("constrained-beam", self.options)

    def beams(self, limits: Sequence[int], source: Tensor, constraints: Sequence[Constraints]) -> Beams:
        """See Beam."""
        return _Banks(self.options, limits, source, constraints)
