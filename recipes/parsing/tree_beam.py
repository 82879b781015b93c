"""The search `tree-beam`: a beam search restricted to linearised trees over the words of the sentence.

A plug-in for `nmt translate --plugin tree_beam.py --decoder tree-beam`. Without this restriction, a model
loses count of the words in long sentences. Dimensions: N hypotheses, B sentences, V target tokens, D brackets open at once.
"""

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from nmt import register
from nmt.decoders.base import Hypothesis
from nmt.decoders.beam import Beam
from nmt.decoders.filters import Constraints
from nmt.decoders.options import BeamOptions
from nmt.models.base import Scorer, SearchScorer, State
from nmt.symbols import EOS, SYMBOLS
from nmt.text.pipeline import Pipeline

MAX_DEPTH: Final = 100  # brackets open at once
OPENS, CLOSES, LEAF, OTHER = range(4)  # kinds of target tokens


@register("decoder", "tree-beam", BeamOptions)
class TreeBeam(Beam):
    """Beam search restricted to trees over the sentence's words, as linearised by recipes/parsing."""

    def use_pipeline(self, pipeline: Pipeline) -> None:
        super().use_pipeline(pipeline)
        pieces = [pipeline.target.piece(token) for token in range(pipeline.target.size)]
        labels = {label: number for number, label in enumerate(sorted({piece[1:] for piece in pieces}))}
        self._labels = torch.tensor([labels[piece[1:]] for piece in pieces])  # V
        kinds = [{"(": OPENS, ")": CLOSES}.get(piece[:1], LEAF) for piece in pieces]
        self._kinds = torch.tensor([OTHER] * len(SYMBOLS) + kinds[len(SYMBOLS) :])  # V

    def decode(self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        assert self.source_text is not None
        words = torch.tensor([len(self.source_text(row).split()) for row in source.tolist()], device=source.device)
        kinds, labels = self._kinds.to(source.device), self._labels.to(source.device)
        return super().decode(tree_scorer(scorer, words, kinds, labels), source, constraints)


def tree_scorer(scorer: Scorer, words: Tensor, kinds: Tensor, labels: Tensor) -> SearchScorer:
    """A Scorer that allows only tokens that continue a tree over as many words as the sentence has.

    words: (B,) number of words per sentence; kinds: (V,) OPENS, CLOSES, LEAF or OTHER; labels: (V,) equal for brackets that match
    """

    def start(source: Tensor) -> State:
        state = scorer.start(source)
        none = torch.zeros_like(words)
        state.hypotheses |= {
            "left": words,
            "depth": none,
            "last": none + OTHER,
            "open": none[:, None].repeat(1, MAX_DEPTH),
        }
        return state

    def step(tokens: Tensor, state: State) -> tuple[Tensor, State]:
        left, depth, last, opened = (state.hypotheses.pop(name) for name in ("left", "depth", "last", "open"))
        log_probs, state = scorer.step(tokens, state)
        last = torch.where(tokens >= len(SYMBOLS), kinds[tokens], last)  # N
        opens, closes = last == OPENS, last == CLOSES
        place = depth.clamp(0, MAX_DEPTH - 1)[:, None]  # a dead hypothesis can have any token
        opened = torch.where(opens[:, None], opened.scatter(1, place, labels[tokens][:, None]), opened)  # N D
        left, depth = left - (last == LEAF).long(), depth + opens.long() - closes.long()
        state.hypotheses |= {"left": left, "depth": depth, "last": last, "open": opened}
        log_probs.masked_fill_(~allowed(left, depth, last, opened), -math.inf)
        return log_probs, state

    def allowed(left: Tensor, depth: Tensor, last: Tensor, opened: Tensor) -> Tensor:
        """Which tokens continue each hypothesis: (N, V) bool. A constituent has at least one word, and the tree has one root."""
        innermost = opened.gather(1, (depth - 1).clamp(min=0)[:, None])  # N 1
        has_words, is_open = (left > 0)[:, None], (depth > 0)[:, None]
        begins = (last == OTHER)[:, None]
        opens = (kinds == OPENS) & has_words & (is_open | begins) & (depth < MAX_DEPTH)[:, None]
        leaves = (kinds == LEAF) & has_words & is_open
        not_empty = is_open & (last != OPENS)[:, None] & ((depth > 1)[:, None] | ~has_words)
        closes = (kinds == CLOSES) & not_empty & (labels == innermost)
        ends = (torch.arange(len(kinds), device=kinds.device) == EOS) & ~is_open & ~begins
        return opens | leaves | closes | ends

    return SearchScorer(start, step)
