"""Beam search with GNMT's penalties (Wu et al., 2016, section 7), in batches, stopped when nothing better can come.

Each step takes the 2 W best continuations of a sentence's W hypotheses. Those of the best W that end go to its finished
list, the best W that do not end live on; so a beam of 1 without a penalty is greedy search.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmt import opt, register
from nmt.decoders.base import Decoder, Hypothesis, SearchOptions, alive_sentences, signature
from nmt.decoders.filters import Constraints, Prefixes
from nmt.errors import UserError
from nmt.models.base import Scorer
from nmt.symbols import BOS, EOS, PAD

BLOCK: Final = 64  # numbers whose maximum is looked at first


@dataclass(frozen=True, kw_only=True)
class BeamOptions(SearchOptions):
    beam_size: int = opt(4, "hypotheses that are kept for each sentence; 4 in the paper", aliases=("b", "beam"))
    length_penalty: Literal["gnmt", "average", "none"] = opt(
        "gnmt",
        "divides the log-probability: gnmt ((5 + n) / 6)^alpha, average n^alpha (fairseq's lenpen); n counts EOS",
    )
    alpha: float = opt(0.6, "strength of the length penalty; 0.6 in the paper")
    coverage_penalty: float = opt(
        0.0, "beta of GNMT's: adds beta * sum of log(min(attention a source word got, 1)); 0.2 in GNMT, 0 in the paper"
    )
    stop: Literal["best", "full"] = opt(
        "best",
        "a sentence is done when no better hypothesis can come (best), or when beam_size of them have ended (full, as in "
        "fairseq and CTranslate2: quicker)",
    )
    n_best: int = opt(1, "translations to give for each sentence, at most beam_size", aliases=("nbest",))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beam_size < 1:
            raise ValueError(f"beam_size is {self.beam_size}; it must be at least 1")
        if not 1 <= self.n_best <= self.most:
            raise ValueError(f"n_best is {self.n_best}; it must be at least 1 and at most {self.most}")
        for name in ("alpha", "coverage_penalty"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")

    @property
    def most(self) -> int:
        """Translations that a search can give."""
        return self.beam_size

    def divisor(self, length: int) -> float:
        """The length penalty (equation 14): what a log-probability is divided by. length: tokens, EOS counted."""
        if self.length_penalty == "gnmt":
            return float(((5 + length) / 6) ** self.alpha)
        return float(length**self.alpha) if self.length_penalty == "average" else 1.0


class Continued(NamedTuple):
    """How hypotheses go on by a word, each (B, W): what has ended, and what lives on, best first.

    ended, totals: nats, -inf where there is none; ended_from, parents: the hypotheses they go on from; words: of the living
    """

    ended: Tensor
    ended_from: Tensor
    totals: Tensor
    parents: Tensor
    words: Tensor


Observer = Callable[[Tensor, Continued], None]
"""(numbers (B,) of the beams, how each goes on from the hypotheses that live in it), at each step of a search."""


class Beams:
    """The beams that are still searched: one a sentence, or several (`groups`) side by side. B counts beams here.

    of_each: how many finished hypotheses are wanted of a beam, W at most
    numbers: (B,) which beam of the source each is
    limits: (B,) the most tokens of a translation
    totals: (B, W) nats of the live hypotheses, best first; (B, 1) before the first word
    said: (B, W, t) their tokens
    coverage: (B, W, S) what they have seen of each source position; 1 where no word is. None where nobody asks
    scores, log_probs: (B, W) of the finished hypotheses, best first; -inf where there is none yet
    found: (B, W, L) their tokens; EOS behind the end
    """

    def __init__(
        self, options: BeamOptions, limits: Sequence[int], source: Tensor, groups: int, size: int, of_each: int
    ) -> None:
        self.options, self.groups, self.of_each, device = options, groups, of_each, source.device
        B, W = len(limits) * groups, size
        self.numbers = torch.arange(B, device=device)
        self.limits, self.shortest = torch.tensor(limits, device=device).repeat_interleave(groups), min(limits)
        self.totals = torch.zeros((B, 1), device=device)
        self.said = torch.zeros((B, 1, 0), dtype=torch.int64, device=device)
        self.coverage: Tensor | None = None
        if options.coverage_penalty:
            self.coverage = (source <= EOS).float().repeat_interleave(self.groups, 0)[:, None]  # EOS is no word either
        self.scores = torch.full((B, W), -math.inf, device=device)
        self.log_probs = self.scores.clone()
        self.found = torch.full((B, W, max(limits) + 1), EOS, device=device)
        self.num_ended = torch.zeros((B,), dtype=torch.int64, device=device)
        lengths = range(max(limits) + 2)
        self._divisors = torch.tensor([options.divisor(length) for length in lengths], device=device)
        self._results = self.scores.clone(), self.log_probs.clone(), self.found.clone()
        self.observer: Observer | None = None

    def prefixes(self) -> Prefixes:
        """What the live hypotheses have said."""
        each = self.said.shape[1]
        return Prefixes(
            self.said.flatten(0, 1),
            (self.numbers // self.groups).repeat_interleave(each),
            self.limits.repeat_interleave(each),
            self.shortest,
        )

    def advance(self, log_probs: Tensor, attention: Tensor | None) -> tuple[Tensor, Tensor]:
        """Go on by one word. log_probs: (N, V); attention: (N, S) where that word looked.

        Returns for the live hypotheses, best first: which one each goes on from, and its word, both (B, W).
        """
        if self.coverage is not None and attention is not None:
            self.coverage = self.coverage + attention.view(len(self.numbers), -1, attention.shape[1])
        on = self.continued(log_probs.view(len(self.numbers), -1, log_probs.shape[1]))
        if self.observer is not None:
            self.observer(self.numbers, on)
        self._finish(on)
        self.totals = on.totals
        self.said = torch.cat([_of(self.said, on.parents), on.words[:, :, None]], 2)
        if self.coverage is not None:
            self.coverage = _of(self.coverage, on.parents)
        return on.parents, on.words

    def continued(self, log_probs: Tensor) -> Continued:
        """The strategy: how the hypotheses go on. log_probs: (B, W, V)"""
        return best_continuations(log_probs, self.totals, self.scores.shape[1])

    def _finish(self, on: Continued) -> None:
        """Put what has ended among the finished, the best of which stay."""
        W, length = self.scores.shape[1], self.said.shape[2] + 1
        scores = on.ended / self._divisors[length]
        if self.coverage is not None:
            logs = self.coverage.clamp(torch.finfo(torch.float32).tiny, 1).log().sum(2)  # B W
            scores = scores + self.options.coverage_penalty * logs.gather(1, on.ended_from)
        whole = pad(_of(self.said, on.ended_from), (0, self.found.shape[2] - length + 1), value=EOS)
        self.scores, best = torch.cat([self.scores, scores], 1).topk(W)
        self.log_probs = torch.cat([self.log_probs, on.ended], 1).gather(1, best)
        self.found = _of(torch.cat([self.found, whole], 1), best)
        self.num_ended = self.num_ended + (on.ended > -math.inf).sum(1)

    def done(self) -> list[bool]:
        """Of each sentence, whether it needs to be searched no longer."""
        if self.options.stop == "full":
            done = (self.num_ended >= self.scores.shape[1]) | (self.totals[:, 0] == -math.inf)
        else:
            done = self.scores[:, self.of_each - 1] >= self.upper_bound()
        found: list[bool] = done.view(-1, self.groups).all(1).tolist()
        return found

    def upper_bound(self) -> Tensor:
        """(B,) the best score that any live hypothesis can reach: no word makes a log-probability greater, no length
        penalty is weaker than that of the greatest length, and coverage only takes away."""
        return self.totals[:, 0] / self._divisors[self.limits + 1]

    def keep(self, kept: Tensor) -> None:
        """Search only these beams on, (B',)."""
        self.store()
        self.numbers, self.limits, self.num_ended = self.numbers[kept], self.limits[kept], self.num_ended[kept]
        self.totals, self.said = self.totals[kept], self.said[kept]
        self.coverage = None if self.coverage is None else self.coverage[kept]
        self.scores, self.log_probs, self.found = self.scores[kept], self.log_probs[kept], self.found[kept]

    def store(self) -> None:
        """Note the finished hypotheses as results."""
        for result, tensor in zip(self._results, (self.scores, self.log_probs, self.found), strict=True):
            result[self.numbers] = tensor

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The n_best results of each sentence."""
        scores, log_probs, found = (
            result.cpu().unflatten(0, (-1, self.groups))[:, :, : self.of_each].flatten(1, 2) for result in self._results
        )
        scores, best = scores.topk(self.options.n_best)
        rows = zip(scores.tolist(), log_probs.gather(1, best).tolist(), _of(found, best).tolist(), strict=True)
        return [
            [
                Hypothesis(tokens[: tokens.index(EOS)], log_prob, score)
                for score, log_prob, tokens in zip(*row, strict=True)
                if score != -math.inf
            ]
            or [Hypothesis([], -math.inf, -math.inf)]
            for row in rows
        ]


def best_continuations(log_probs: Tensor, totals: Tensor, size: int, penalty: Tensor | None = None) -> Continued:
    """The best ways to go on from live hypotheses by a word. log_probs: (B, W, V); totals: (B, W); size: W of the next step

    penalty: (B, V) what is taken from a word's log-probability when it is compared with others, and only then
    """
    V = log_probs.shape[2]
    ranked = log_probs if penalty is None else log_probs - penalty[:, None]
    values, words = largest(ranked, min(2 * size, V))  # B W 2W
    if 2 * size > V:
        values, words = pad(values, (0, 2 * size - V), value=-math.inf), pad(words, (0, 2 * size - V), value=PAD)
    scores, places = (values + totals[:, :, None]).flatten(1).topk(2 * size)
    parents, words = places // (2 * size), words.flatten(1).gather(1, places)  # B 2W
    ends = words == EOS
    own = scores if penalty is None else scores + penalty.gather(1, words)  # nats, without the penalty
    ended = own[:, :size].masked_fill(~ends[:, :size], -math.inf)
    totals, chosen = scores.masked_fill(ends, -math.inf).topk(size)
    if penalty is not None:
        totals, order = own.masked_fill(ends, -math.inf).gather(1, chosen).sort(descending=True)
        chosen = chosen.gather(1, order)
    return Continued(ended, parents[:, :size], totals, parents.gather(1, chosen), words.gather(1, chosen))


def largest(numbers: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`numbers.topk(count)` of the last dimension, on a CPU by blocks: where the largest are is found by the blocks' maxima."""
    V = numbers.shape[-1]
    whole = V - V % BLOCK
    if numbers.device.type != "cpu" or whole <= count * BLOCK:
        return numbers.topk(count)
    blocks = numbers[..., :whole].unflatten(-1, (-1, BLOCK))
    best = blocks.amax(-1).topk(count).indices  # the largest numbers are in the blocks of the largest maxima
    places = (best[..., None] * BLOCK + torch.arange(BLOCK)).flatten(-2)
    places = torch.cat([places, torch.arange(whole, V).expand(*places.shape[:-1], -1)], -1)
    values, chosen = numbers.gather(-1, places).topk(count)
    return values, places.gather(-1, chosen)


def _of(tensor: Tensor, hypotheses: Tensor) -> Tensor:
    """The rows of some hypotheses of each beam: tensor (B, W, X), hypotheses (B, W') -> (B, W', X)."""
    return tensor.gather(1, hypotheses[:, :, None].expand(-1, -1, tensor.shape[2]))


@register("decoder", "beam", BeamOptions)
class Beam(Decoder):
    """Beam search with a length penalty; stops when no better hypothesis is possible.

    observer: is told of each step, where one wants to know
    """

    observer: Observer | None = None

    def __init__(self, options: BeamOptions) -> None:
        self.options = options
        self.n_best, self.paths = options.n_best, options.beam_size

    @property
    def signature(self) -> str:
        return signature("beam", self.options)

    def normalised(self, log_prob: float, length: int) -> float:
        """See Decoder."""
        return log_prob / self.options.divisor(length)

    def beams(self, limits: Sequence[int], source: Tensor, constraints: Sequence[Constraints]) -> Beams:
        """The strategy, for one batch."""
        return Beams(self.options, limits, source, 1, self.options.beam_size, self.n_best)

    def decode(self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        """See Decoder; n_best hypotheses a sentence, fewer where there are not so many.

        A hypothesis that is as long as it may be is made to end, and the log-probability of its EOS counts.
        """
        limits = self.options.limits(source, constraints)
        beams, filters = self.beams(limits, source, constraints), self.filters(self.options, constraints, source.device)
        beams.observer = self.observer
        state, each = scorer.start(source), torch.arange(beams.groups, device=source.device)
        state.watched = self.options.coverage_penalty > 0
        if beams.groups > 1:
            state.reorder(beams.numbers // beams.groups)
        tokens = torch.full_like(beams.numbers, BOS)
        for _ in range(max(limits) + 1):
            log_probs, state = scorer.step(tokens, state)
            if state.watched and state.attention is None:
                raise UserError("the model has no attention, which coverage_penalty is made of (leave it out)")
            filters(log_probs, beams.prefixes())
            before = beams.said.shape[1]
            parents, words = beams.advance(log_probs, state.attention)
            rows = parents + before * torch.arange(len(parents), device=source.device)[:, None]  # of the state
            stay = alive_sentences(beams.done())  # the one wait for the device in a step
            if stay == []:
                break
            if stay is None:
                state.reorder(rows.flatten())
            else:
                sentences = torch.tensor(stay, device=source.device)
                kept = (sentences[:, None] * beams.groups + each).flatten()
                beams.keep(kept)
                rows, words = rows[kept], words[kept]
                state.keep(sentences, rows.flatten())
            tokens = words.flatten()
        beams.store()
        return beams.hypotheses()
