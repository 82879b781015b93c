"""The graph of a beam search: every hypothesis of every step, whether it was kept, and where it ended.

It is written as JSON for programs, or as a page with one column per step and the best hypothesis at the top.
"""

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from html import escape
from typing import Final, Literal

import torch
from torch import Tensor

from nmt.decoders.base import Decoder
from nmt.decoders.beam import Beam, Continuations
from nmt.decoders.hypothesis import Constraints
from nmt.errors import UserError
from nmt.extensions.watch.pictures.page import html_page
from nmt.extensions.watch.pictures.tokens import readable_text, readable_token
from nmt.files import json_text
from nmt.models.base import Scorer
from nmt.symbols import BOS, EOS

STEP_PIXELS, HYPOTHESIS_PIXELS, MARGIN_PIXELS = (
    120,
    22,
    14,
)  # width of a column, height of a hypothesis, margin of the graph
MAX_LABEL_CHARACTERS: Final = 12
GRAPH_ENDINGS: Final = (".html", ".json")
GRAPH_LEGEND: Final = (
    "Each column is a step of the search, in which every hypothesis gets one more token. A line joins a hypothesis to the one "
    "that it continues. In a column, hypotheses that continue are above those that ended, the best ones first. Bold: prefixes of "
    "the chosen translation. Pale: dropped at the next step. Underlined: ended, with its score. Point at a token to read the "
    "whole hypothesis."
)


@dataclass(frozen=True)
class Node:
    """A hypothesis: the tokens of its parent and one more.

    parent: index of the parent's node; None for node 0, the empty hypothesis
    step: number of tokens
    beam: index of the beam, if the search has several
    token: the last token, as text
    log_prob: sum over the tokens, in nats
    score: the score normalised by length, if the hypothesis ended
    state: "ended" if the last token is EOS, "kept" if another hypothesis continues it, otherwise "dropped"
    best: whether it is a prefix of the chosen translation
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
    nodes: the hypotheses in the order of the search, parents first
    """

    source: list[str]
    search: str
    nodes: list[Node]


class Recorder:
    """Records the search for one sentence. rows: (parent, step, beam, token, log_prob in nats) for each hypothesis"""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int, float]] = [(-1, 0, 0, BOS, 0.0)]
        self._live: dict[int, list[int]] = {}

    def __call__(self, numbers: Tensor, on: Continuations) -> None:
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
        """Add a hypothesis and return its index. A hypothesis with probability 0 is skipped, and its index is -1."""
        if log_prob == -math.inf:
            return -1
        self.rows.append((parent, self.rows[parent][1] + 1, beam, token, log_prob))
        return len(self.rows) - 1

    def best(self, tokens: Sequence[int]) -> set[int]:
        """The indices of the hypotheses that lead to a translation, from the empty one to the one with EOS. tokens: no EOS"""
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
    given: ids of the chosen translation, without EOS
    pieces: functions that return the text of a source id and of a target id
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
    """Raise UserError unless the search has a beam to draw."""
    if not isinstance(decoder, Beam):
        raise UserError("--beam-graph needs a beam search (use --decoder beam)")


def graphs_json(graphs: Sequence[BeamGraph]) -> str:
    """A list with one object per graph."""
    return json_text([asdict(graph) for graph in graphs])


def graphs_page(graphs: Sequence[BeamGraph]) -> str:
    """A page without scripts. Hovering over a hypothesis shows its whole text."""
    parts = [
        f'<h2>{escape(readable_text(graph.source))}</h2><p class="note">{escape(graph.search)}</p>{_svg(graph)}'
        for graph in graphs
    ]
    return html_page("Hypotheses of the beam search", [f'<p class="note">{GRAPH_LEGEND}</p>', *parts])


def _svg(graph: BeamGraph) -> str:
    rows = [0] * (1 + max(node.step for node in graph.nodes))
    places: list[tuple[int, int]] = []
    tokens: list[list[str]] = [[]]  # tokens of each hypothesis
    lines, labels = [], []
    for node in graph.nodes:
        x, y = MARGIN_PIXELS + STEP_PIXELS * node.step, MARGIN_PIXELS + HYPOTHESIS_PIXELS * rows[node.step]
        rows[node.step] += 1
        if node.parent is not None:
            tokens.append([*tokens[node.parent], node.token])
            lines.append(_line(node, places[node.parent], (x, y)))
        labels.append(_label(node, readable_text(tokens[len(places)]), (x, y)))
        places.append((x, y))
    width, height = STEP_PIXELS * len(rows) + 2 * MARGIN_PIXELS, HYPOTHESIS_PIXELS * max(rows) + MARGIN_PIXELS
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-size="12" '
        'fill="currentColor" style="max-width:none">'
    )
    return f'<div style="overflow-x:auto">{svg}{"".join(lines)}{"".join(labels)}</svg></div>'


def _line(node: Node, start: tuple[int, int], end: tuple[int, int]) -> str:
    width, opacity = 2 if node.best else 0.5, 0.3 if node.state == "dropped" else 0.8
    return (
        f'<path d="M{start[0] + STEP_PIXELS * 0.7:g} {start[1]} L{end[0] - 4} {end[1]}" stroke="currentColor" '
        f'fill="none" stroke-width="{width}" opacity="{opacity}"/>'
    )


def _label(node: Node, text: str, place: tuple[int, int]) -> str:
    """The last token of a hypothesis, with the whole hypothesis as a tooltip."""
    score = "" if node.score is None else f" {node.score:.2f}"
    tooltip = f"{text}\n{node.log_prob:.4f} nats" + (f", score{score}" if score else "")
    style = ' font-weight="bold"' if node.best else ""
    style += ' text-decoration="underline"' if node.state == "ended" else ""
    style += ' opacity=".45"' if node.state == "dropped" else ""
    token = readable_token(node.token)
    token = token if len(token) <= MAX_LABEL_CHARACTERS else token[: MAX_LABEL_CHARACTERS - 1] + "…"
    return (
        f'<text x="{place[0]}" y="{place[1] + 4}"{style}>{escape(token)}{score}<title>{escape(tooltip)}</title></text>'
    )
