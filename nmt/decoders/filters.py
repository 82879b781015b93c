"""The filters of a search. The search options and each request's constraints decide which tokens may come next.

Dimensions: N hypotheses of all sentences, t tokens in each so far, V vocabulary, B source rows, P prefix length.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.decoders.hypothesis import Constraints
from nmt.decoders.options import SearchOptions
from nmt.filters.base import Filter, Forbid
from nmt.symbols import BOS, EOS, PAD, UNK


class Prefixes(NamedTuple):
    """The hypotheses at a step, in the form that filters read.

    tokens: (N, t) tokens so far
    sentences: (N,) source row of each hypothesis
    limits: (N,) maximum number of tokens in each hypothesis
    min_limit: a lower bound on `limits`, known without waiting for the device
    """

    tokens: Tensor
    sentences: Tensor
    limits: Tensor
    min_limit: int


class Filters:
    """All filters of a search. They write minus infinity into log_probs (N, V) for tokens that must not follow.

    constraints: constraints on each source row
    others: further filters by name, whose texts are in the constraints
    limits: maximum number of tokens in each row's translation, to which the lengths of its prefix and phrases are added
    """

    def __init__(
        self,
        options: SearchOptions,
        constraints: Sequence[Constraints],
        source: Tensor,
        others: Mapping[str, Filter],
    ) -> None:
        lengths = ((source != PAD).sum(1) - 1).tolist()  # without EOS
        rows = zip(lengths, constraints, strict=True)
        self.options, self.limits = options, [options.limit(length) + row.num_tokens for length, row in rows]
        prefixes = [constraint.prefix for constraint in constraints]
        self._prefix_lengths = list(map(len, prefixes))
        self._prefix_tokens = torch.tensor(list(zip_longest(*prefixes, fillvalue=PAD)), device=source.device)  # P B
        self._others: list[list[Forbid]] = [
            [others[name].begin(texts) for name, texts in constraint.filters.items() if texts]
            for constraint in constraints
        ]

    def __call__(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        """Apply all filters. A constraint's prefix takes priority over them."""
        position, forced = prefixes.tokens.shape[1], None
        if position < len(self._prefix_tokens):
            tokens = self._prefix_tokens[position, prefixes.sentences]  # N
            forced = tokens, tokens != PAD, log_probs.gather(1, tokens[:, None])
        forbidden = {PAD: True, BOS: True, EOS: position < self.options.min_length, UNK: self.options.no_unk}
        for token in (token for token, is_forbidden in forbidden.items() if is_forbidden):
            log_probs[:, token] = -math.inf
        if self.options.no_repeat_ngram:
            self._forbid_repeated_ngrams(log_probs, prefixes.tokens)
        if any(self._others):
            self._forbid_by_others(log_probs, prefixes)
        if position >= prefixes.min_limit:  # allow only EOS at the maximum length
            leave_only(log_probs, torch.full_like(prefixes.limits, EOS), prefixes.limits <= position)
        if forced is not None:
            leave_only(log_probs, *forced)

    def _forbid_repeated_ngrams(self, log_probs: Tensor, tokens: Tensor) -> None:
        """Forbid each token that would repeat an n-gram of its hypothesis."""
        n = self.options.no_repeat_ngram
        if tokens.shape[1] < n:
            return
        ngrams = tokens.unfold(1, n, 1)  # N t-n+1 n
        matches = (ngrams[:, :, :-1] == tokens[:, None, tokens.shape[1] - n + 1 :]).all(2)  # N t-n+1
        log_probs.scatter_(1, torch.where(matches, ngrams[:, :, -1], PAD), -math.inf)

    def _forbid_by_others(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        rows = zip(prefixes.sentences.tolist(), prefixes.tokens.tolist(), strict=True)
        for number, (sentence, tokens) in enumerate(rows):
            for forbid in self._others[sentence]:
                forbidden = torch.from_numpy(forbid(tokens, self._prefix_lengths[sentence]))
                log_probs[number].masked_fill_(forbidden.to(log_probs.device), -math.inf)


def leave_only(log_probs: Tensor, tokens: Tensor, rows: Tensor, values: Tensor | None = None) -> None:
    """Forbid all tokens but one in some rows.

    log_probs: (N, V), changed in place
    tokens: (N,) the allowed token
    rows: (N,) bool, the rows to change
    values: (N, 1) log-probabilities to set for these tokens; None keeps the current ones
    """
    own = log_probs.gather(1, tokens[:, None])  # N 1
    log_probs.masked_fill_(rows[:, None], -math.inf)
    log_probs.scatter_(1, tokens[:, None], own if values is None else torch.where(rows[:, None], values, own))
