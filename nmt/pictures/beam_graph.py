"""The graph of a beam search: every hypothesis of every step, what became of it, and where it ended."""

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nmt.decoders.base import Decoder
from nmt.decoders.beam import Beam, Continuations
from nmt.decoders.filters import Constraints
from nmt.errors import UserError
from nmt.models.base import Scorer
from nmt.symbols import BOS, EOS


@dataclass(frozen=True)
class Node:
    """A hypothesis: the tokens of its parent and one more.

    parent: number of its node; None for node 0, the empty hypothesis
    step: number of its tokens
    beam: number of its beam, if the search has several
    token: the last token, as text
    log_prob: sum over its tokens, in nats
    score: of a hypothesis that ended, normalised by its length
    state: "kept" if a node has it as its parent, "ended" if it has EOS, else "dropped"
    best: whether it is a prefix of the given translation
    """

    parent: int | None
    step: int
    beam: int
    token: str
    log_prob: float
    score: float | None
    state: Literal["kept", "dropped", "ended"]
    best: bool


@dataclass(frozen=True)
class BeamGraph:
    """The hypotheses of a search for one sentence.

    source: tokens of the sentence
    search: signature of the decoder
    nodes: in the order of the search, parents first
    """

    source: list[str]
    search: str
    nodes: list[Node]


class Recorder:
    """Observer of the search for one sentence. rows: (parent, step, beam, token, log_prob in nats) of each hypothesis"""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int, float]] = [(-1, 0, 0, BOS, 0.0)]
        self._live: dict[int, list[int]] = {}

    def __call__(self, numbers: Tensor, on: Continuations) -> None:
        """See `nmt.decoders.beam.Observer`."""
        columns = (on.ended, on.ended_from, on.totals, on.parents, on.tokens)
        for beam, ended, ended_from, totals, parents, words in zip(
            numbers.tolist(), *(column.tolist() for column in columns), strict=True
        ):
            previous = self._live.get(beam, [0])
            self._live[beam] = [
                self._add(previous[parent], beam, word, total)
                for parent, word, total in zip(parents, words, totals, strict=True)
            ]
            for parent, total in zip(ended_from, ended, strict=True):
                self._add(previous[parent], beam, EOS, total)

    def _add(self, parent: int, beam: int, token: int, log_prob: float) -> int:
        """Add a hypothesis; returns its number, or -1 if its probability is 0 and it is left out."""
        if log_prob == -math.inf:
            return -1
        self.rows.append((parent, self.rows[parent][1] + 1, beam, token, log_prob))
        return len(self.rows) - 1

    def best(self, tokens: Sequence[int]) -> set[int]:
        """The numbers of a translation's prefixes, and of its end. tokens: without EOS"""
        for number in [number for number, row in enumerate(self.rows) if row[3] == EOS]:
            path = [number]
            while path[-1] > 0:
                path.append(self.rows[path[-1]][0])
            if [self.rows[prefix][3] for prefix in path[1:-1]] == list(reversed(tokens)):
                return set(path)
        return set()


def beam_graph(
    decoder: Decoder,
    scorer: Scorer,
    device: torch.device,
    source: Sequence[int],
    constraint: Constraints,
    given: Sequence[int],
    pieces: tuple[Callable[[int], str], Callable[[int], str]],
) -> BeamGraph:
    """Repeat the search for one sentence and record it.

    source: ids without EOS, at least one
    given: ids of the translation that was chosen, without EOS
    pieces: the texts of a source id and of a target id
    Raises UserError for a search without a beam.
    """
    check_search(decoder)
    recorder, watched = Recorder(), copy(decoder)
    assert isinstance(watched, Beam)
    watched.observer = recorder
    watched.search(scorer, torch.tensor([[*source, EOS]], device=device), [constraint])
    parents, best = {row[0] for row in recorder.rows}, recorder.best(given)
    nodes = [
        Node(
            None if step == 0 else parent,
            step,
            beam,
            pieces[1](token),
            log_prob,
            decoder.normalised(log_prob, step) if token == EOS else None,
            "ended" if token == EOS else "kept" if number in parents else "dropped",
            number in best,
        )
        for number, (parent, step, beam, token, log_prob) in enumerate(recorder.rows)
    ]
    return BeamGraph([pieces[0](token) for token in source], decoder.signature, nodes)


def check_search(decoder: Decoder) -> None:
    """Raise UserError unless a search has a beam, so that its graph can be drawn."""
    if not isinstance(decoder, Beam):
        raise UserError("--beam-graph draws the hypotheses of a beam (give --decoder beam, or another beam)")
