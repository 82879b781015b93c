"""Filters of a search: which tokens may come next, by the options of the search and the constraints of each request.

Dimensions: N hypotheses of all sentences, t tokens that each has so far, V vocabulary, B source rows, P prefix length.
"""

import math
from collections.abc import Sequence
from itertools import zip_longest

import torch
from torch import Tensor

from nmt import opt, options_class
from nmt.decoders.avoid import TokenTexts, avoid_filter
from nmt.decoders.constraints import Constraints, Filter, Prefixes
from nmt.symbols import BOS, EOS, PAD, UNK


@options_class
class FilterOptions:
    """Which tokens a translation may have."""

    min_length: int = opt(
        1, "tokens that a translation has at least, EOS not counted, even where that is more than the most", minimum=0
    )
    no_repeat_ngram: int = opt(
        0, "no sequence of this many tokens comes twice in a translation; 0 allows all", minimum=0
    )
    no_unk: bool = opt(False, "never say the unknown word")


class Filters:
    """All filters of a search, in their order.

    constraints: of each source row
    token_texts: the text of each target token; needed if a request avoids texts
    """

    def __init__(
        self,
        options: FilterOptions,
        constraints: Sequence[Constraints],
        device: torch.device,
        token_texts: TokenTexts | None,
    ) -> None:
        self.options = options
        prefixes = [constraint.prefix for constraint in constraints]
        self._filters: list[Filter] = [self._forbid_symbols]
        if options.no_repeat_ngram:
            self._filters.append(self._forbid_repeated_ngrams)
        if any(constraint.avoid for constraint in constraints):
            if token_texts is None:
                raise ValueError("avoiding texts needs the text of each token (Decoder.target)")
            avoid = [constraint.avoid for constraint in constraints]
            self._filters.append(avoid_filter(avoid, list(map(len, prefixes)), token_texts))
        self._filters.append(_end_at_limit)
        self._prefix_tokens = torch.tensor(list(zip_longest(*prefixes, fillvalue=PAD)), device=device)  # P B

    def __call__(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        """Apply all filters; a constraint's prefix overrides what they forbid."""
        position, forced = prefixes.tokens.shape[1], None
        if position < len(self._prefix_tokens):
            tokens = self._prefix_tokens[position, prefixes.sentences]  # N
            forced = tokens, tokens != PAD, log_probs.gather(1, tokens[:, None])
        for apply in self._filters:
            apply(log_probs, prefixes)
        if forced is not None:
            leave_only(log_probs, *forced)

    def _forbid_symbols(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        """Forbid PAD and BOS, EOS before the minimum length, and UNK if the options say so."""
        forbidden = [PAD, BOS]
        if prefixes.tokens.shape[1] < self.options.min_length:
            forbidden.append(EOS)
        if self.options.no_unk:
            forbidden.append(UNK)
        for token in forbidden:
            log_probs[:, token] = -math.inf

    def _forbid_repeated_ngrams(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        """Forbid each token that already followed the last n - 1 tokens."""
        tokens, n = prefixes.tokens, self.options.no_repeat_ngram
        if tokens.shape[1] < n:
            return
        ngrams = tokens.unfold(1, n, 1)  # N t-n+1 n
        matches = (ngrams[:, :, :-1] == tokens[:, None, tokens.shape[1] - n + 1 :]).all(2)  # N t-n+1
        log_probs.scatter_(1, torch.where(matches, ngrams[:, :, -1], PAD), -math.inf)


def leave_only(log_probs: Tensor, tokens: Tensor, rows: Tensor, values: Tensor | None = None) -> None:
    """Forbid all tokens but one in some rows.

    log_probs: (N, V), written into; tokens: (N,) the token that is left; rows: (N,) bool
    values: (N, 1) log-probability to give that token; None keeps its own
    """
    own = log_probs.gather(1, tokens[:, None])  # N 1
    log_probs.masked_fill_(rows[:, None], -math.inf)
    log_probs.scatter_(1, tokens[:, None], own if values is None else torch.where(rows[:, None], values, own))


def _end_at_limit(log_probs: Tensor, prefixes: Prefixes) -> None:
    """Leave only EOS to hypotheses of their greatest length."""
    if prefixes.tokens.shape[1] < prefixes.min_limit:
        return
    leave_only(log_probs, torch.full_like(prefixes.limits, EOS), prefixes.limits <= prefixes.tokens.shape[1])


def top_p(log_probs: Tensor, p: float) -> Tensor:
    """Keep the smallest set of tokens with probability p or more (Holtzman et al., 2020); the others get -inf.

    log_probs: (N, K), not necessarily normalised, in descending order; the first is always kept
    """
    probabilities = torch.softmax(log_probs, 1)
    preceding = probabilities.cumsum(1) - probabilities
    return log_probs.masked_fill(preceding >= p, -math.inf)


def above_epsilon(log_probs: Tensor, epsilon: float) -> Tensor:
    """Keep the tokens of probability epsilon or more (Hewitt et al., 2022), and the best; the others get -inf.

    log_probs: (N, V), not necessarily normalised
    """
    log_probs = log_probs.log_softmax(1)
    return log_probs.masked_fill(log_probs < log_probs.amax(1, keepdim=True).clamp(max=math.log(epsilon)), -math.inf)
