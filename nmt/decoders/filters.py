"""Filters of a search: which words may come next, and what one sentence wishes of its translation.

A filter is a pure function of what a hypothesis has said, so nothing has to follow hypotheses that change places.
Dimensions: N hypotheses of all sentences, t tokens that each has said, V vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.decoders.banned import AvoidFilter, TokenTexts
from nmt.options import opt
from nmt.symbols import BOS, EOS, PAD, UNK


@dataclass(frozen=True)
class Constraints:
    """What one sentence wishes of its translation. Tokens are ids of the target.

    prefix: tokens that it begins with
    phrases: token sequences that it contains, in any order; a part of another one counts as contained in it
    avoid: texts that it does not contain as whole words, however they are cut into tokens
    """

    prefix: tuple[int, ...] = ()
    phrases: tuple[tuple[int, ...], ...] = ()
    avoid: tuple[str, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Tokens that are given."""
        return len(self.prefix) + sum(map(len, self.phrases))


class Prefixes(NamedTuple):
    """The hypotheses of a step.

    tokens: (N, t) said so far; sentences: (N,) the row of the source each belongs to; limits: (N,) the most tokens
    shortest: a number that none of the limits is below
    """

    tokens: Tensor
    sentences: Tensor
    limits: Tensor
    shortest: int


Filter = Callable[[Tensor, Prefixes], None]
"""(log_probs (N, V), written into, prefixes): what may not come next gets minus infinity."""


@dataclass(frozen=True, kw_only=True)
class FilterOptions:
    """Which words a translation may have."""

    min_length: int = opt(
        1, "tokens that a translation has at least, EOS not counted, even where that is more than the most"
    )
    no_repeat_ngram: int = opt(0, "no sequence of this many tokens comes twice in a translation; 0 allows all")
    no_unk: bool = opt(False, "never say the unknown word")

    def __post_init__(self) -> None:
        for name in ("min_length", "no_repeat_ngram"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")


class Filters:
    """All filters of a search, in their order. surfaces: of the target's tokens, wanted where a wish avoids texts"""

    def __init__(
        self,
        options: FilterOptions,
        constraints: Sequence[Constraints],
        device: torch.device,
        token_texts: TokenTexts | None,
    ) -> None:
        self.options = options
        self._filters: list[Filter] = [self._allowed]
        if options.no_repeat_ngram:
            self._filters.append(self._no_repeat)
        if any(constraint.avoid for constraint in constraints):
            if token_texts is None:
                raise ValueError("a wish avoids texts, and what tokens are as text is not known")
            given = [len(constraint.prefix) for constraint in constraints]
            self._filters.append(AvoidFilter([constraint.avoid for constraint in constraints], given, token_texts))
        self._filters.append(_end_in_time)
        prefixes = [constraint.prefix for constraint in constraints]
        self._prefix = ForcedPrefix(prefixes, device) if any(prefixes) else None

    def __call__(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        """A prefix that is wished wins over what is forbidden."""
        kept = self._prefix.kept(log_probs, prefixes) if self._prefix else None
        for one in self._filters:
            one(log_probs, prefixes)
        if kept is not None:
            leave_only(log_probs, *kept)

    def _allowed(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        """No PAD, no BOS, and no EOS before the translation is long enough."""
        forbidden = [PAD, BOS]
        if prefixes.tokens.shape[1] < self.options.min_length:
            forbidden.append(EOS)
        if self.options.no_unk:
            forbidden.append(UNK)
        for word in forbidden:
            log_probs[:, word] = -math.inf

    def _no_repeat(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        """No n-gram twice: not the word that once followed the last n - 1 words."""
        said, n = prefixes.tokens, self.options.no_repeat_ngram
        if said.shape[1] < n:
            return
        grams = said.unfold(1, n, 1)  # N t-n+1 n
        same = (grams[:, :, :-1] == said[:, None, said.shape[1] - n + 1 :]).all(2)
        log_probs.scatter_(1, torch.where(same, grams[:, :, -1], PAD), -math.inf)


class ForcedPrefix:
    """Each sentence begins with given tokens. prefixes: of each row of the source"""

    def __init__(self, prefixes: Sequence[tuple[int, ...]], device: torch.device) -> None:
        width = max(map(len, prefixes))
        self._tokens = torch.tensor([[*one, *[PAD] * (width - len(one))] for one in prefixes], device=device)  # B P

    def kept(self, log_probs: Tensor, prefixes: Prefixes) -> tuple[Tensor, Tensor, Tensor] | None:
        """The words that have to come next, the rows they are of, and their log-probabilities; None when all is said."""
        place = prefixes.tokens.shape[1]
        if place >= self._tokens.shape[1]:
            return None
        wanted = self._tokens[prefixes.sentences, place]  # N
        return wanted, wanted != PAD, log_probs.gather(1, wanted[:, None])


def leave_only(log_probs: Tensor, words: Tensor, rows: Tensor, kept: Tensor | None = None) -> None:
    """Take every word but one from some rows. words: (N,); rows: (N,) bool; kept: (N, 1) its log-probability, if not as it is"""
    own = log_probs.gather(1, words[:, None])
    log_probs.masked_fill_(rows[:, None], -math.inf)
    log_probs.scatter_(1, words[:, None], own if kept is None else torch.where(rows[:, None], kept, own))


def _end_in_time(log_probs: Tensor, prefixes: Prefixes) -> None:
    """Leave nothing but EOS to those that are as long as they may be."""
    if prefixes.tokens.shape[1] < prefixes.shortest:
        return
    leave_only(log_probs, torch.full_like(prefixes.limits, EOS), prefixes.limits <= prefixes.tokens.shape[1])


def top_p(log_probs: Tensor, p: float) -> Tensor:
    """Keep the smallest set of words that has probability p or more (Holtzman et al., 2020); the others get -inf.

    log_probs: (N, K), of any scale, the greatest first; the first is always kept
    """
    probabilities = torch.softmax(log_probs, 1)
    before = probabilities.cumsum(1) - probabilities
    return log_probs.masked_fill(before >= p, -math.inf)


def likely(log_probs: Tensor, epsilon: float) -> Tensor:
    """Keep the words of probability epsilon or more (Hewitt et al., 2022), and the most probable; the others get -inf.

    log_probs: (N, V), of any scale
    """
    log_probs = log_probs.log_softmax(1)
    return log_probs.masked_fill(log_probs < log_probs.amax(1, keepdim=True).clamp(max=math.log(epsilon)), -math.inf)
