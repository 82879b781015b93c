"""Beam search with GNMT's penalties (Wu et al., 2016, section 7), in batches. It stops when nothing better is possible.

Each step selects the 2 W best continuations of a sentence's W hypotheses. Those among the best W that end with EOS join the
finished hypotheses, and the best W that do not end stay live. So a beam of 1 without a penalty is greedy search.
Dimensions: B beams, W hypotheses per beam, t tokens of each, S source positions, V vocabulary, N = B * W rows.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmt import register
from nmt.decoders.base import Decoder, alive_sentences
from nmt.decoders.filters import Filters, Prefixes
from nmt.decoders.hypothesis import Constraints, Hypothesis
from nmt.decoders.options import BeamOptions
from nmt.errors import UserError
from nmt.models.base import Scorer
from nmt.symbols import BOS, EOS, PAD

TOPK_BLOCK_SIZE: Final = 64  # numbers per block; `topk` first compares the maxima of blocks


class Continuations(NamedTuple):
    """The hypotheses of beams after one more token; (B, W) tensors, best first.

    ended: log-probabilities of hypotheses that end, in nats; -inf for missing ones
    ended_from: the live hypothesis that each of these continues
    totals: log-probabilities of hypotheses that stay live, in nats; -inf for missing ones
    parents: the previous hypothesis that each of these continues
    tokens: the last tokens of the live hypotheses
    """

    ended: Tensor
    ended_from: Tensor
    totals: Tensor
    parents: Tensor
    tokens: Tensor


Observer = Callable[[Tensor, Continuations], None]
"""Called at each step of a search with the beams' numbers (B,) and their continuations."""


class Beams:
    """The beams that are still being searched: one per sentence, or several in parallel (`groups`).

    numbers: (B,) each beam's index among all beams of the search
    limits: (B,) maximum number of tokens of a translation
    totals: (B, W) log-probabilities of the live hypotheses in nats, best first; (B, 1) before the first token
    tokens: (B, W, t) tokens of the live hypotheses
    coverage: (B, W, S) attention that each source position has received from each live hypothesis; 1 at EOS and padding;
        None without a penalty
    scores, log_probs: (B, W) of the finished hypotheses, best first; -inf for missing ones
    finished: (B, W, T) tokens of the finished hypotheses, padded with EOS
    num_ended: (B,) number of hypotheses that have ended
    is_done: (B,) whether the sentence of a beam is finished; it accepts no more hypotheses and waits to leave the batch
    """

    def __init__(
        self, options: BeamOptions, limits: Sequence[int], source: Tensor, constraints: Sequence[Constraints]
    ) -> None:
        """Start a search. limits, constraints: one per source row"""
        self.options, device = options, source.device
        groups, W, self.n_best = self.shape(options)
        self.groups, B = groups, len(limits) * groups
        self.numbers = torch.arange(B, device=device)
        self.limits, self.min_limit = torch.tensor(limits, device=device).repeat_interleave(groups), min(limits)
        self.totals = torch.zeros((B, 1), device=device)
        self.tokens = torch.zeros((B, 1, 0), dtype=torch.int64, device=device)
        self.coverage: Tensor | None = None
        if options.coverage_penalty:
            self.coverage = (source <= EOS).float().repeat_interleave(groups, 0)[:, None]  # 1 at padding and EOS
        self.scores = torch.full((B, W), -math.inf, device=device)
        self.log_probs = self.scores.clone()
        self.finished = torch.full((B, W, max(limits) + 1), EOS, device=device)
        self.num_ended = torch.zeros((B,), dtype=torch.int64, device=device)
        self.is_done = torch.zeros((B,), dtype=torch.bool, device=device)
        lengths = range(max(limits) + 2)
        self._divisors = torch.tensor([options.divisor(length) for length in lengths], device=device)
        self._results = self.scores.clone(), self.log_probs.clone(), self.finished.clone()
        self.observer: Observer | None = None
        self.begin(constraints)

    def begin(self, constraints: Sequence[Constraints]) -> None:
        """Prepare a search strategy that depends on the constraints of each source row."""

    @staticmethod
    def shape(options: Any) -> tuple[int, int, int]:
        """The numbers of beams per sentence, hypotheses per beam (W), and results per beam."""
        return 1, options.beam_size, options.n_best

    def prefixes(self) -> Prefixes:
        """The live hypotheses, in the form that filters read."""
        W = self.tokens.shape[1]
        sentences = (self.numbers // self.groups).repeat_interleave(W)  # N
        return Prefixes(self.tokens.flatten(0, 1), sentences, self.limits.repeat_interleave(W), self.min_limit)

    def advance(self, log_probs: Tensor, attention: Tensor | None) -> tuple[Tensor, Tensor]:
        """Extend the hypotheses by one token.

        log_probs: (N, V), for the next token; attention: (N, S), at this step
        returns: parents and tokens of the live hypotheses, best first, (B, W) each
        """
        if self.coverage is not None and attention is not None:
            self.coverage = self.coverage + attention.view(len(self.numbers), -1, attention.shape[1])
        continuations = self.continuations(log_probs.view(len(self.numbers), -1, log_probs.shape[1]))
        if self.observer is not None:
            self.observer(self.numbers, continuations)
        self._finish(continuations)
        parents, tokens = continuations.parents, continuations.tokens
        self.totals = continuations.totals
        self.tokens = torch.cat([_select(self.tokens, parents), tokens[:, :, None]], 2)
        if self.coverage is not None:
            self.coverage = _select(self.coverage, parents)
        return parents, tokens

    def continuations(self, log_probs: Tensor) -> Continuations:
        """Choose the continuations according to this search's strategy. log_probs: (B, W, V)"""
        return best_continuations(log_probs, self.totals, self.scores.shape[1], prune=self.options.prune)

    def _finish(self, continuations: Continuations) -> None:
        """Merge the hypotheses that end into the finished ones, and keep the best W."""
        W, length = self.scores.shape[1], self.tokens.shape[2] + 1
        log_probs = continuations.ended.masked_fill(self.is_done[:, None], -math.inf)
        scores = log_probs / self._divisors[length]
        if self.coverage is not None:  # GNMT's equation 14: beta * sum of log(min(coverage, 1))
            logs = self.coverage.clamp(torch.finfo(torch.float32).tiny, 1).log().sum(2)  # B W
            scores = scores + self.options.coverage_penalty * logs.gather(1, continuations.ended_from)
        ended = _select(self.tokens, continuations.ended_from)  # B W t
        ended = pad(ended, (0, self.finished.shape[2] - length + 1), value=EOS)  # B W T
        self.scores, best = torch.cat([self.scores, scores], 1).topk(W)
        self.log_probs = torch.cat([self.log_probs, log_probs], 1).gather(1, best)
        self.finished = _select(torch.cat([self.finished, ended], 1), best)
        counted = log_probs > -math.inf
        if self.options.prune is not None:
            least = self.scores[:, :1] - self.options.prune
            self.scores = self.scores.masked_fill(self.scores < least, -math.inf)
            counted &= scores >= least
        self.num_ended = self.num_ended + counted.sum(1)

    def done(self) -> list[bool]:
        """Whether the search of each sentence is finished."""
        if self.options.stop == "full" or self.options.beam_size == 1:
            done = (self.num_ended >= self.scores.shape[1]) | (self.totals[:, 0] == -math.inf)
        else:
            required = self.scores[:, self.n_best - 1]
            if self.options.prune is not None:
                required = torch.maximum(required, self.scores[:, 0] - self.options.prune)
            done = required >= self.upper_bound()
        of_sentences = done.view(-1, self.groups).all(1)
        self.is_done = of_sentences.repeat_interleave(self.groups)
        is_done: list[bool] = of_sentences.tolist()
        return is_done

    def upper_bound(self) -> Tensor:
        """The best score that any live hypothesis can still reach, (B,).

        Log-probabilities never increase, the maximum length has the largest divisor, and coverage can only lower a score.
        """
        return self.totals[:, 0] / self._divisors[self.limits + 1]

    def keep(self, kept: Tensor) -> None:
        """Continue the search only for these beams, (B',)."""
        self.store()
        self.numbers, self.limits, self.num_ended = self.numbers[kept], self.limits[kept], self.num_ended[kept]
        self.is_done = self.is_done[kept]
        self.totals, self.tokens = self.totals[kept], self.tokens[kept]
        self.coverage = None if self.coverage is None else self.coverage[kept]
        self.scores, self.log_probs, self.finished = self.scores[kept], self.log_probs[kept], self.finished[kept]

    def store(self) -> None:
        """Store the finished hypotheses as results."""
        for result, tensor in zip(self._results, (self.scores, self.log_probs, self.finished), strict=True):
            result[self.numbers] = tensor

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The n_best results of each sentence."""
        scores, log_probs, finished = (
            result.cpu().unflatten(0, (-1, self.groups))[:, :, : self.n_best].flatten(1, 2) for result in self._results
        )
        scores, best = scores.topk(self.options.n_best)
        rows = zip(scores.tolist(), log_probs.gather(1, best).tolist(), _select(finished, best).tolist(), strict=True)
        return [
            [
                Hypothesis(tokens[: tokens.index(EOS)], log_prob, score)
                for score, log_prob, tokens in zip(*row, strict=True)
                if score != -math.inf
            ]
            or [Hypothesis([], -math.inf, -math.inf)]
            for row in rows
        ]


def best_continuations(
    log_probs: Tensor, totals: Tensor, size: int, penalty: Tensor | None = None, prune: float | None = None
) -> Continuations:
    """Find the best continuations of live hypotheses by one token.

    log_probs: (B, W, V)
    totals: (B, W) log-probabilities of the hypotheses, in nats
    size: W of the next step
    penalty: (B, V) subtracted from a token's log-probability, only for ranking
    prune: drop tokens that are more than this many nats below a hypothesis' best token
    """
    V = log_probs.shape[2]
    ranked = log_probs if penalty is None else log_probs - penalty[:, None]
    values, tokens = topk(ranked, min(2 * size, V))  # B W 2W
    if prune is not None:
        values = values.masked_fill(values < values[:, :, :1] - prune, -math.inf)
    if 2 * size > V:
        values, tokens = pad(values, (0, 2 * size - V), value=-math.inf), pad(tokens, (0, 2 * size - V), value=PAD)
    scores, indices = (values + totals[:, :, None]).flatten(1).topk(2 * size)  # B 2W
    parents, tokens = indices // (2 * size), tokens.flatten(1).gather(1, indices)
    ends = tokens == EOS
    own = scores if penalty is None else scores + penalty.gather(1, tokens)  # nats, without the penalty term
    ended = own[:, :size].masked_fill(~ends[:, :size], -math.inf)
    totals, chosen = scores.masked_fill(ends, -math.inf).topk(size)
    if penalty is not None:
        totals, order = own.masked_fill(ends, -math.inf).gather(1, chosen).sort(descending=True)
        chosen = chosen.gather(1, order)
    return Continuations(ended, parents[:, :size], totals, parents.gather(1, chosen), tokens.gather(1, chosen))


def topk(numbers: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Compute `numbers.topk(count)`. On a CPU this is faster, because it searches only the blocks with the largest maxima."""
    V = numbers.shape[-1]
    in_blocks = V - V % TOPK_BLOCK_SIZE
    if numbers.device.type != "cpu" or in_blocks <= count * TOPK_BLOCK_SIZE:
        return numbers.topk(count)
    blocks = numbers[..., :in_blocks].unflatten(-1, (-1, TOPK_BLOCK_SIZE))
    best_blocks = blocks.amax(-1).topk(count).indices  # these blocks contain the largest numbers
    indices = (best_blocks[..., None] * TOPK_BLOCK_SIZE + torch.arange(TOPK_BLOCK_SIZE)).flatten(-2)
    indices = torch.cat([indices, torch.arange(in_blocks, V).expand(*indices.shape[:-1], -1)], -1)
    values, chosen = numbers.gather(-1, indices).topk(count)
    return values, indices.gather(-1, chosen)


def _select(tensor: Tensor, hypotheses: Tensor) -> Tensor:
    """Select the rows of some hypotheses of each beam: tensor (B, W, X), hypotheses (B, W') -> (B, W', X)"""
    return tensor.gather(1, hypotheses[:, :, None].expand(-1, -1, tensor.shape[2]))


@register("decoder", "beam", BeamOptions)
class Beam(Decoder):
    """Beam search with a length penalty. It stops when no better hypothesis is possible.

    beams: the class that implements the search strategy
    observer: called at each step, or None
    """

    beams: ClassVar[type[Beams]] = Beams
    observer: Observer | None = None

    def __init__(self, options: BeamOptions) -> None:
        self.options, self.n_best = options, options.n_best
        groups, size, _ = self.beams.shape(options)
        self.paths = groups * size

    def normalised(self, log_prob: float, length: int) -> float:
        divisor: float = self.options.divisor(length)
        return log_prob / divisor

    def decode(self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        """See Decoder. Returns up to n_best hypotheses per sentence.

        A hypothesis that reaches the maximum length is ended, and its score includes the log-probability of EOS.
        """
        filters = Filters(self.options, constraints, source, self.filters)
        beams = self.beams(self.options, filters.limits, source, constraints)
        beams.observer = self.observer
        state, groups = scorer.start(source), torch.arange(beams.groups, device=source.device)
        state.watched = self.options.coverage_penalty > 0
        if beams.groups > 1:
            state.reorder(beams.numbers // beams.groups)
        tokens = torch.full_like(beams.numbers, BOS)
        for _ in range(max(filters.limits) + 1):
            log_probs, state = scorer.step(tokens, state)
            if state.watched and state.attention is None:
                raise UserError("--coverage-penalty needs a model with attention (drop --coverage-penalty)")
            filters(log_probs, beams.prefixes())
            W = beams.tokens.shape[1]
            parents, next_tokens = beams.advance(log_probs, state.attention)
            rows = parents + W * torch.arange(len(parents), device=source.device)[:, None]  # B W rows of the state
            alive = alive_sentences(beams.done())  # the only part of a step that waits for the device
            if alive == []:
                break
            if alive is None:
                state.reorder(rows.flatten())
            else:
                sentences = torch.tensor(alive, device=source.device)
                kept = (sentences[:, None] * beams.groups + groups).flatten()
                beams.keep(kept)
                rows, next_tokens = rows[kept], next_tokens[kept]
                state.keep(sentences, rows.flatten())
            tokens = next_tokens.flatten()
        beams.store()
        return beams.hypotheses()
