"""The constraints on a search and its results. This module does not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec


@dataclass(frozen=True)
class Constraints:
    """The constraints of one request on its translation.

    prefix: target ids with which it must start
    phrases: sequences of target ids that it must contain, in any order; one that is part of another may occur only there
    filters: texts for token filters (`nmt list filter`), by name
    """

    prefix: tuple[int, ...] = ()
    phrases: tuple[tuple[int, ...], ...] = ()
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def num_tokens(self) -> int:
        """The number of tokens in prefix and phrases."""
        return len(self.prefix) + sum(map(len, self.phrases))


class Hypothesis(msgspec.Struct, frozen=True):
    """A translation found by a search.

    tokens: ids without BOS and EOS
    log_prob: log-probability of tokens and EOS under the Scorer, in nats
    score: the value by which the search ranks hypotheses, such as log_prob after a length penalty
    """

    tokens: list[int]
    log_prob: float
    score: float
