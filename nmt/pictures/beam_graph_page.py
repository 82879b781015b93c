"""Beam graphs as a file: JSON for a program, or a page with a column a step, the best hypothesis at the top."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Final

from nmt.artefact import check_file_name, write_file
from nmt.pictures.beam_graph import BeamGraph, Node
from nmt.pictures.page import html_page

STEP_PIXELS, HYPOTHESIS_PIXELS, MARGIN_PIXELS = 120, 22, 14  # a column, a hypothesis, around the graph
MAX_LABEL_CHARACTERS: Final = 12
GRAPH_LEGEND: Final = (
    "A column is a step; hypotheses that go on stand above those that ended, the best first. Bold: prefixes of the translation. "
    "Pale: dropped at the next step. Underlined: ended, with its score."
)


def check_graph_file(path: Path) -> None:
    """Raise UserError unless graphs can be written into a file of this name; for a check before the work."""
    check_file_name(path, GRAPH_WRITERS, "a beam graph is written")


def write_graphs(path: Path, graphs: Sequence[BeamGraph]) -> None:
    """Write graphs as a page or as JSON, by the file's name.

    Raises UserError as check_graph_file does, ResourceError if it cannot be written.
    """
    check_graph_file(path)
    write_file(path, GRAPH_WRITERS[path.suffix.lower()](graphs).encode())


def graphs_json(graphs: Sequence[BeamGraph]) -> str:
    """A list with an object a graph."""
    return json.dumps([asdict(graph) for graph in graphs], ensure_ascii=False, indent=1) + "\n"


def graphs_page(graphs: Sequence[BeamGraph]) -> str:
    """A page without script: pointing at a hypothesis shows all its tokens."""
    parts = [
        f'<h2>{escape(" ".join(graph.source))}</h2><p class="note">{escape(graph.search)}</p>{_svg(graph)}'
        for graph in graphs
    ]
    return html_page("Hypotheses of the beam", [f'<p class="note">{GRAPH_LEGEND}</p>', *parts])


def _svg(graph: BeamGraph) -> str:
    """The graph as an <svg> element, in a box that can be scrolled."""
    rows = [0] * (1 + max(node.step for node in graph.nodes))
    places: list[tuple[int, int]] = []
    texts = [""]  # of the hypotheses
    lines, labels = [], []
    for node in graph.nodes:
        x, y = MARGIN_PIXELS + STEP_PIXELS * node.step, MARGIN_PIXELS + HYPOTHESIS_PIXELS * rows[node.step]
        rows[node.step] += 1
        if node.parent is not None:
            texts.append(f"{texts[node.parent]} {node.token}".strip())
            lines.append(_line(node, places[node.parent], (x, y)))
        labels.append(_label(node, texts[len(places)], (x, y)))
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
    """The last token of a hypothesis, with its whole text as a tooltip."""
    score = "" if node.score is None else f" {node.score:.2f}"
    tooltip = f"{text}\n{node.log_prob:.4f} nats" + (f", score{score}" if score else "")
    style = ' font-weight="bold"' if node.best else ""
    style += ' text-decoration="underline"' if node.state == "ended" else ""
    style += ' opacity=".45"' if node.state == "dropped" else ""
    is_short = len(node.token) <= MAX_LABEL_CHARACTERS
    token = node.token if is_short else node.token[: MAX_LABEL_CHARACTERS - 1] + "…"
    return (
        f'<text x="{place[0]}" y="{place[1] + 4}"{style}>{escape(token)}{score}<title>{escape(tooltip)}</title></text>'
    )


GRAPH_WRITERS: Final = {".html": graphs_page, ".json": graphs_json}
