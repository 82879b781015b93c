"""The searches `tree-beam` and `pair-beam`: beam searches whose results are always trees over the words of the sentence.

A plug-in for `nmt translate --plugin tree_beam.py --decoder tree-beam`. `tree-beam` is for trees in brackets (trees.py),
`pair-beam` for trees in pairs (pairs.py). Without this restriction, a model loses count of the words in long sentences.
Dimensions: N hypotheses, B sentences, V target tokens, D brackets open at once.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Final, Protocol

import torch
from torch import Tensor

from nmt import register
from nmt.decoders.base import Hypothesis
from nmt.decoders.beam import Beam
from nmt.decoders.hypothesis import Constraints
from nmt.decoders.options import BeamOptions
from nmt.models.base import Scorer, SearchScorer, State
from nmt.symbols import EOS, SYMBOLS
from nmt.text.pipeline import Pipeline

MAX_DEPTH: Final = 100  # brackets open at once
OPENS, CLOSES, LEAF, OTHER = range(4)  # kinds of tokens in brackets
WORD_LEFT, WORD_RIGHT, JOIN_LEFT, JOIN_RIGHT = range(4)  # kinds of tokens in pairs

Facts = dict[str, Tensor]
"""What a search must know about each hypothesis: tensors (N, ...)."""


class Rules(Protocol):
    """Which tokens may follow, so that a line is a tree."""

    def __init__(self, pieces: Sequence[str]) -> None:
        """pieces: the target tokens"""

    def start(self, words: Tensor) -> Facts:
        """The facts before the first token. words: (B,) source words per sentence"""

    def after(self, tokens: Tensor, facts: Facts) -> Facts:
        """The facts after one more token. tokens: (N,)"""

    def allowed(self, facts: Facts) -> Tensor:
        """Which tokens may follow: (N, V) bool."""


class BracketRules:
    """`(NP DT NN )NP`: brackets match, a constituent has at least one word, and the tree has one root."""

    def __init__(self, pieces: Sequence[str]) -> None:
        labels = {label: number for number, label in enumerate(sorted({piece[1:] for piece in pieces}))}
        self.labels = torch.tensor([labels[piece[1:]] for piece in pieces])  # V, equal for brackets that match
        kinds = [{"(": OPENS, ")": CLOSES}.get(piece[:1], LEAF) for piece in pieces]
        self.kinds = torch.tensor([OTHER] * len(SYMBOLS) + kinds[len(SYMBOLS) :])  # V

    def start(self, words: Tensor) -> Facts:
        self.labels, self.kinds = self.labels.to(words.device), self.kinds.to(words.device)
        none = torch.zeros_like(words)
        opened = none[:, None].repeat(1, MAX_DEPTH)  # labels of the open brackets
        return {"left": words, "depth": none, "last": none + OTHER, "open": opened}

    def after(self, tokens: Tensor, facts: Facts) -> Facts:
        depth, last = facts["depth"], self.kinds[tokens]  # N
        place = depth.clamp(0, MAX_DEPTH - 1)[:, None]  # a dead hypothesis can have any token
        with_label = facts["open"].scatter(1, place, self.labels[tokens][:, None])
        return {
            "left": facts["left"] - (last == LEAF).long(),
            "depth": depth + (last == OPENS).long() - (last == CLOSES).long(),
            "last": last,
            "open": torch.where((last == OPENS)[:, None], with_label, facts["open"]),  # N D
        }

    def allowed(self, facts: Facts) -> Tensor:
        left, depth, last = (facts[name][:, None] for name in ("left", "depth", "last"))  # N 1
        innermost = facts["open"].gather(1, (depth - 1).clamp(min=0))  # N 1
        has_words, is_open, begins = left > 0, depth > 0, last == OTHER
        opens = (self.kinds == OPENS) & has_words & (is_open | begins) & (depth < MAX_DEPTH)
        leaves = (self.kinds == LEAF) & has_words & is_open
        not_empty = is_open & (last != OPENS) & ((depth > 1) | ~has_words)
        closes = (self.kinds == CLOSES) & not_empty & (self.labels == innermost)
        ends = (torch.arange(len(self.kinds), device=left.device) == EOS) & ~is_open & ~begins
        return opens | leaves | closes | ends


class PairRules:
    """`>DT >(NP <NN`: words and joins alternate, and each right child has an open place, which a join before it has opened."""

    def __init__(self, pieces: Sequence[str]) -> None:
        kinds = [(JOIN_LEFT if piece[1:2] == "(" else WORD_LEFT) + (piece[:1] == "<") for piece in pieces]
        self.kinds = torch.tensor([-1] * len(SYMBOLS) + kinds[len(SYMBOLS) :])  # V

    def start(self, words: Tensor) -> Facts:
        self.kinds = self.kinds.to(words.device)
        none = torch.zeros_like(words)
        return {"left": words // 2, "places": none, "joins": none.bool()}  # pairs.py writes each word as two

    def after(self, tokens: Tensor, facts: Facts) -> Facts:
        kind = self.kinds[tokens]
        is_word = (kind == WORD_LEFT) | (kind == WORD_RIGHT)
        change = (kind == JOIN_LEFT).long() - (kind == WORD_RIGHT).long()
        return {"left": facts["left"] - is_word.long(), "places": facts["places"] + change, "joins": is_word}

    def allowed(self, facts: Facts) -> Tensor:
        left, places, joins = (facts[name][:, None] for name in ("left", "places", "joins"))  # N 1
        has_place, more = places > 0, left > 0
        kinds = self.kinds
        words = (kinds == WORD_RIGHT) & has_place
        words |= (kinds == WORD_LEFT) & ((left > places.clamp(min=1)) | ((left == 1) & ~has_place))
        join = (kinds == JOIN_LEFT) & (places < left) | (kinds == JOIN_RIGHT) & has_place
        ends = torch.arange(len(kinds), device=left.device) == EOS
        return torch.where(joins, torch.where(more, join, ends), words)


class RuledBeam(Beam):
    """Beam search restricted by `rules`, over the words of the sentence."""

    takes_shortlist = False  # the rules number the tokens of the whole vocabulary
    rules_class: ClassVar[type[Rules]]

    def use_pipeline(self, pipeline: Pipeline) -> None:
        super().use_pipeline(pipeline)
        self._rules = self.rules_class([pipeline.target.piece(token) for token in range(pipeline.target.size)])

    def decode(self, scorer: Scorer, source: Tensor, constraints: Sequence[Constraints]) -> list[list[Hypothesis]]:
        assert self.source_text is not None
        words = torch.tensor([len(self.source_text(row).split()) for row in source.tolist()], device=source.device)
        return super().decode(ruled_scorer(scorer, self._rules, words), source, constraints)


@register("decoder", "tree-beam", BeamOptions)
class TreeBeam(RuledBeam):
    """Beam search restricted to trees in brackets over the sentence's words."""

    rules_class = BracketRules


@register("decoder", "pair-beam", BeamOptions)
class PairBeam(RuledBeam):
    """Beam search restricted to trees in pairs over the sentence's words."""

    rules_class = PairRules


def ruled_scorer(scorer: Scorer, rules: Rules, words: Tensor) -> SearchScorer:
    """A Scorer that allows only what the rules allow. words: (B,) words per sentence"""

    def start(source: Tensor) -> State:
        state = scorer.start(source)
        state.hypotheses |= {f"rules.{name}": fact for name, fact in rules.start(words).items()}
        return state

    def step(tokens: Tensor, state: State) -> tuple[Tensor, State]:
        names = [name for name in state.hypotheses if name.startswith("rules.")]
        facts = {name.removeprefix("rules."): state.hypotheses.pop(name) for name in names}
        log_probs, state = scorer.step(tokens, state)
        facts = rules.after(tokens, facts)
        state.hypotheses |= {f"rules.{name}": fact for name, fact in facts.items()}
        log_probs.masked_fill_(~rules.allowed(facts), -math.inf)
        return log_probs, state

    return SearchScorer(start, step)
