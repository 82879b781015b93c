"""The graph of a beam search: every hypothesis that it kept, step by step, what became of it, and where it ended.

A program reads it as JSON; a person as a page, a column a step, the best hypothesis of a step at the top.
"""

import json
import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Final, Literal

import torch
from torch import Tensor

from nmt.artefact import check_file_name, write_file
from nmt.decoders.base import Decoder
from nmt.decoders.beam import Beam, Continued
from nmt.decoders.filters import Constraints
from nmt.errors import UserError
from nmt.models.base import Scorer
from nmt.pictures.page import html_page
from nmt.symbols import BOS, EOS

WIDTH, HEIGHT, ROOM = 120, 22, 14  # pixels: a step, a hypothesis, a character and a half
LONGEST: Final = 12  # characters of a token


@dataclass(frozen=True)
class Node:
    """A hypothesis: that of its parent with a token more. Nodes are counted from 0, which has said nothing.

    beam: which of several side by side; log_prob: nats of all its tokens; score: of one that ended, by its length
    state: whether something of it was kept at the next step, or nothing (when the search stopped, too), or it ended
    best: whether the translation that was given goes through it
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
    """source: the tokens that were translated; search: its signature; nodes: in the order in which they were made"""

    source: list[str]
    search: str
    nodes: list[Node]


class Recorder:
    """What a search tells of one sentence. rows: (parent, step, beam, token, nats) of each hypothesis"""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int, float]] = [(-1, 0, 0, BOS, 0.0)]
        self._live: dict[int, list[int]] = {}

    def __call__(self, numbers: Tensor, on: Continued) -> None:
        """See nmt.decoders.beam.Observer."""
        columns = (on.ended, on.ended_from, on.totals, on.parents, on.words)
        for beam, ended, ended_from, totals, parents, words in zip(
            numbers.tolist(), *(column.tolist() for column in columns), strict=True
        ):
            before = self._live.get(beam, [0])
            self._live[beam] = [
                self._added(before[parent], beam, word, total)
                for parent, word, total in zip(parents, words, totals, strict=True)
            ]
            for parent, total in zip(ended_from, ended, strict=True):
                self._added(before[parent], beam, EOS, total)

    def _added(self, parent: int, beam: int, token: int, log_prob: float) -> int:
        """The number of a hypothesis; -1 for one that is none, because it has no probability."""
        if log_prob == -math.inf:
            return -1
        self.rows.append((parent, self.rows[parent][1] + 1, beam, token, log_prob))
        return len(self.rows) - 1

    def path(self, number: int) -> list[int]:
        """The hypotheses that one was made of, it the first and node 0 the last."""
        found = [number]
        while found[-1] > 0:
            found.append(self.rows[found[-1]][0])
        return found

    def best(self, tokens: Sequence[int]) -> set[int]:
        """The hypotheses that a translation went through."""
        for number, (_, _, _, token, _) in enumerate(self.rows):
            path = self.path(number) if token == EOS else []
            if path and [self.rows[one][3] for one in path[1:-1]] == list(reversed(tokens)):
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
    """Search for the translation of one sentence and note how. source: ids without EOS, one at least

    given: the ids of the translation that was chosen
    pieces: how ids of the source, and of the target, are shown
    Raises UserError for a search that has no beam.
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
    """UserError unless a search has a beam whose graph can be drawn."""
    if not isinstance(decoder, Beam):
        raise UserError("--beam-graph draws the hypotheses of a beam (give --decoder beam, or another beam)")


def check_graph_file(path: Path) -> None:
    """UserError unless graphs can be written into a file of this name; to be asked before the work is done."""
    check_file_name(path, FORMS, "a beam graph is written")


def write_graphs(path: Path, graphs: Sequence[BeamGraph]) -> None:
    """Write graphs, as a page or as JSON by the file's name. Raises UserError, and ResourceError where it cannot be written."""
    check_graph_file(path)
    write_file(path, FORMS[path.suffix.lower()](graphs).encode())


def as_json(graphs: Sequence[BeamGraph]) -> str:
    """A list with an object a graph."""
    return json.dumps([asdict(graph) for graph in graphs], ensure_ascii=False, indent=1) + "\n"


def as_page(graphs: Sequence[BeamGraph]) -> str:
    """A page without script: point at a hypothesis to read it whole."""
    told = (
        "A column is a step, what lives on before what ended, the best first. Bold: what was given. Pale: nothing of it was "
        "kept. Underlined: it ended, and has a score."
    )
    parts = [
        f'<h2>{escape(" ".join(one.source))}</h2><p class="note">{escape(one.search)}</p>{_drawn(one)}'
        for one in graphs
    ]
    return html_page("What the beam held", [f'<p class="note">{told}</p>', *parts])


def _drawn(graph: BeamGraph) -> str:
    """The graph as an <svg> element, in a box that can be scrolled."""
    rows, places, texts = [0] * (1 + max(node.step for node in graph.nodes)), [], [""]
    lines, labels = [], []
    for node in graph.nodes:
        x, y = ROOM + WIDTH * node.step, ROOM + HEIGHT * rows[node.step]
        rows[node.step] += 1
        places.append((x, y))
        weight = ' font-weight="bold"' if node.best else ""
        if node.parent is not None:
            left, top = places[node.parent]
            texts.append(f"{texts[node.parent]} {node.token}".strip())
            lines.append(
                f'<path d="M{left + WIDTH * 0.7:g} {top} L{x - 4} {y}" stroke="currentColor" fill="none" '
                f'stroke-width="{2 if node.best else 0.5}" opacity="{0.3 if node.state == "dropped" else 0.8}"/>'
            )
        score = "" if node.score is None else f" {node.score:.2f}"
        told = f"{texts[len(places) - 1]}\n{node.log_prob:.4f} nats" + (f", score{score}" if score else "")
        style = ' text-decoration="underline"' if node.state == "ended" else ""
        style += ' opacity=".45"' if node.state == "dropped" else ""
        cut = node.token if len(node.token) <= LONGEST else node.token[: LONGEST - 1] + "…"
        labels.append(
            f'<text x="{x}" y="{y + 4}"{weight}{style}>{escape(cut)}{score}<title>{escape(told)}</title></text>'
        )
    size = f'width="{WIDTH * len(rows) + 2 * ROOM}" height="{HEIGHT * max(rows) + ROOM}"'
    drawing = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-size="12" fill="currentColor" style="max-width:none">'
    )
    return f'<div style="overflow-x:auto">{drawing}{"".join(lines)}{"".join(labels)}</svg></div>'


FORMS: Final = {".html": as_page, ".json": as_json}
