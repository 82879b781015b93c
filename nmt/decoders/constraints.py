"""Constraints: what a request demands of a translation; and `Filter`, the interface of what forbids next tokens.

Dimensions: N hypotheses of all sentences, t tokens that each has so far, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


@dataclass(frozen=True)
class Constraints:
    """What one request demands of a translation.

    prefix: target ids that it begins with
    phrases: sequences of target ids that it contains, in any order; a part of another phrase is contained in that one
    avoid: texts that it does not contain as whole words, however they are cut into tokens
    """

    prefix: tuple[int, ...] = ()
    phrases: tuple[tuple[int, ...], ...] = ()
    avoid: tuple[str, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Tokens of prefix and phrases."""
        return len(self.prefix) + sum(map(len, self.phrases))


class Prefixes(NamedTuple):
    """The hypotheses of a step, as filters read them.

    tokens: (N, t) so far; sentences: (N,) source row of each; limits: (N,) most tokens of each
    min_limit: a lower bound of `limits`, known without waiting for the device
    """

    tokens: Tensor
    sentences: Tensor
    limits: Tensor
    min_limit: int


Filter = Callable[[Tensor, Prefixes], None]
"""Writes minus infinity into log_probs (N, V) where a token must not come next; a pure function of the prefixes."""
