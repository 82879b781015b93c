"""What a search is given for each sentence and what it returns. Without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec


@dataclass(frozen=True)
class Constraints:
    """What one request demands of a translation.

    prefix: target ids that it begins with
    phrases: sequences of target ids that it contains, in any order; a part of another phrase is contained in that one
    filters: texts for filters of tokens (`nmt list filter`), by their names
    """

    prefix: tuple[int, ...] = ()
    phrases: tuple[tuple[int, ...], ...] = ()
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def num_tokens(self) -> int:
        """Tokens of prefix and phrases."""
        return len(self.prefix) + sum(map(len, self.phrases))


class Hypothesis(msgspec.Struct, frozen=True):
    """A translation of a search.

    tokens: ids without BOS and EOS
    log_prob: natural log-probability of tokens and EOS under the Scorer
    score: what the search ranks by, such as log_prob after a length penalty
    """

    tokens: list[int]
    log_prob: float
    score: float
