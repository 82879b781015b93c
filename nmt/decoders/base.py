"""What every decoder is: a search for good translations over a Scorer, in batches, with the same result alone.

Dimensions: B sentences, S source positions, W hypotheses a sentence, N = B * W rows, V vocabulary, T steps.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import torch
from torch import Tensor

from nmt.decoders.banned import TokenTexts
from nmt.decoders.filters import Constraints, FilterOptions, Filters, Prefixes
from nmt.errors import UserError
from nmt.models.base import Scorer, prepare
from nmt.options import as_dict, opt
from nmt.symbols import BOS, EOS, PAD

LEAVE_TOGETHER: Final = 8  # finished sentences leave once they are an eighth of the batch: leaving copies what stays


@dataclass(frozen=True)
class Hypothesis:
    """A translation that a search found.

    tokens: ids without BOS and EOS
    log_prob: natural log-probability of tokens and EOS under the Scorer
    score: what the search ranks by: log_prob after its length penalty
    """

    tokens: list[int]
    log_prob: float
    score: float


class Target:
    """The tokens of the target as text. decode: the text of a translation; texts: what each token adds to one, when asked"""

    def __init__(self, decode: Callable[[Sequence[int]], str], texts: Callable[[], Sequence[str]]) -> None:
        self.decode, self._texts = decode, texts

    @cached_property
    def token_texts(self) -> TokenTexts:
        """What each token adds, as a table."""
        return TokenTexts(self._texts())


class Decoder(ABC):
    """A search. A registered decoder is built as `cls(options)`.

    n_best: how many hypotheses a sentence it is asked for
    paths: how many of a sentence it follows side by side
    takes_phrases: whether it can be told phrases that a translation has to contain
    takes_shortlist: whether it finds the same among some words of the vocabulary as it would if there were no others
    target: the language of the tokens, from whoever has them as text; searches that work on text need it
    source_text: ids of a source as text, from the same
    """

    n_best: int = 1
    paths: int = 1
    takes_phrases: bool = False
    takes_shortlist: bool = True
    target: Target | None = None
    source_text: Callable[[Sequence[int]], str] | None = None

    def search(
        self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        """For each row of source (B, S): the hypotheses found, best first, at least one.

        Each row has a token, EOS, then PAD; a wish belongs to each, where there are any. The log-probabilities that
        `scorer.step` returns belong to the search, which may write into them.
        """
        constraints = constraints or [Constraints()] * len(source)
        if not self.takes_phrases and any(constraint.phrases for constraint in constraints):
            told = f"{self.signature.partition('|')[0]} cannot be told what a translation must contain"
            raise UserError(f"{told} (give --decoder constrained-beam)")
        with torch.inference_mode():
            return self.decode(prepare(scorer), source, constraints)

    def filters(self, options: FilterOptions, constraints: Sequence[Constraints], device: torch.device) -> Filters:
        """What may not come next, by the options of a search and the wishes of the rows of the source."""
        avoiding = any(constraint.avoid for constraint in constraints)
        return Filters(options, constraints, device, self.target.token_texts if self.target and avoiding else None)

    @abstractmethod
    def decode(self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        """See `search`; a wish for each row, and no gradient."""

    def normalised(self, log_prob: float, length: int) -> float:
        """What the search ranks a hypothesis by, where nothing but its length tells. length: tokens, EOS counted"""
        return log_prob

    @property
    def signature(self) -> str:
        """The search and its settings, as printed beside a score."""
        return type(self).__name__.lower()


@dataclass(frozen=True, kw_only=True)
class SearchOptions(FilterOptions):
    """The options of every search: how long a translation may be, and which words it may have."""

    max_len_a: float = opt(1.0, "a translation has at most a * source + b tokens, EOS not counted on either side")
    max_len_b: int = opt(50, "b of a * source + b; a translation as long as that is ended there; 50 in the paper")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("max_len_a", "max_len_b"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")

    def limits(self, source: Tensor, constraints: Sequence[Constraints]) -> list[int]:
        """The most tokens of a translation of each row of source (B, S): what is wished has room besides."""
        lengths = ((source != PAD).sum(1) - 1).tolist()  # without EOS
        return [
            max(self.min_length, int(self.max_len_a * length + self.max_len_b)) + constraint.num_tokens
            for length, constraint in zip(lengths, constraints, strict=True)
        ]


def signature(name: str, options: Any) -> str:
    """A decoder's signature: its name and every option, as "beam|beam_size:4|alpha:0.6"."""
    return "|".join([name, *(f"{key}:{value}" for key, value in as_dict(options).items())])


def alive_sentences(done: list[bool]) -> list[int] | None:
    """The sentences that stay when those that are done leave; None while too few are done to be worth it."""
    if sum(done) * LEAVE_TOGETHER < max(len(done), 1):
        return None
    return [i for i, finished in enumerate(done) if not finished]


Choose = Callable[[Tensor, Tensor, int], Tensor]


def run_search(
    scorer: Scorer, source: Tensor, copies: int, limits: Sequence[int], filters: Filters, choose: Choose
) -> list[Hypothesis]:
    """Say a word at a time, never looking back: `copies` paths (W) for each row of source (B, S), together.

    limits: the most tokens of a translation of each row of source
    choose: (log_probs (N, V), rows (N,) each in 0..B*W-1, step from 1) -> tokens (N,)
    returns: B * W hypotheses, each scored by its log-probability; one that is as long as it may be is made to end
    """
    device, W = source.device, copies
    longest = max(limits)
    rows = torch.arange(len(limits) * W, device=device)  # the paths still followed
    limit = torch.tensor(limits, device=device).repeat_interleave(W)
    said = torch.full((len(rows), longest + 1), EOS, device=device)
    log_probs_said = torch.zeros((len(rows), longest + 1), device=device)
    ended = torch.zeros_like(rows, dtype=torch.bool)
    tokens = torch.full_like(rows, BOS)
    state = scorer.start(source)
    if W > 1:
        state.reorder(rows // W)
    for step in range(1, longest + 2):
        log_probs, state = scorer.step(tokens, state)
        filters(log_probs, Prefixes(said[rows, : step - 1], rows // W, limit, min(limits)))
        tokens = choose(log_probs, rows, step).masked_fill(ended | (limit < step), EOS)
        log_prob = log_probs.gather(1, tokens[:, None]).squeeze(1)
        said[rows, step - 1] = tokens
        log_probs_said[rows, step - 1] = log_prob.masked_fill(ended, 0.0)
        ended = ended | (tokens == EOS)
        stay = alive_sentences(ended.view(-1, W).all(1).tolist())
        if stay == []:
            break
        if stay is not None:
            sentences = torch.tensor(stay, device=device)
            places = (sentences[:, None] * W + torch.arange(W, device=device)).flatten()
            state.keep(sentences, places)
            rows, limit, ended, tokens = rows[places], limit[places], ended[places], tokens[places]
    sums = log_probs_said.double().sum(1).tolist()
    return [
        Hypothesis(words[: words.index(EOS)], total, total) for words, total in zip(said.tolist(), sums, strict=True)
    ]
