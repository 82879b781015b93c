"""Drawings of translations for `nmt translate`: attention maps (--attention) and beam graphs (--beam-graph)."""

import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import Final, cast

from nmt.cli.translations import Show
from nmt.device import autocast, device_of
from nmt.errors import UserError, quoted
from nmt.extensions.watch.pictures.attention import (
    AttentionMaps,
    attention_maps,
    check_picture,
    terminal_map,
    write_attention,
)
from nmt.extensions.watch.pictures.beam_graph import (
    GRAPH_ENDINGS,
    BeamGraph,
    beam_graph,
    check_search,
    graphs_json,
    graphs_page,
)
from nmt.extensions.watch.pictures.figures import check_file_name
from nmt.files import write_output
from nmt.log import log
from nmt.models.base import Model
from nmt.translate.own_engine import OwnEngine
from nmt.translate.requests import Request
from nmt.translate.results import Translation
from nmt.translate.translator import Translator

TERMINAL: Final = "terminal"


class Drawings:
    """Drawings of the first lines, on the terminal at once, or in files at the end.

    attention: `terminal`, or the file of a page, or of a picture, which has one line; None draws none
    beam_graph: the file of a page or of JSON; None draws none
    max_lines: lines of each drawing
    Raises UserError for a file of another kind.
    """

    def __init__(self, attention: str | None, beam_graph: str | None, max_lines: int) -> None:
        self.on_terminal = attention == TERMINAL
        self.picture = None if attention is None or self.on_terminal else Path(attention)
        self.graph = None if beam_graph is None else Path(beam_graph)
        self._maps_left = 0 if attention is None else max_lines
        self._graphs_left = 0 if beam_graph is None else max_lines
        if self.picture is not None:
            check_picture(self.picture)
            self._maps_left = max_lines if self.picture.suffix.lower() == ".html" else 1
        if self.graph is not None:
            check_file_name(self.graph, GRAPH_ENDINGS, "a beam graph is written")
        self._maps: list[AttentionMaps] = []
        self._graphs: list[BeamGraph] = []

    def beside(self, show: Show, translator: Translator) -> Show:
        """A `show` that draws too; raises UserError for a search that cannot be drawn."""
        if self.graph is not None:
            check_search(_own(translator).decoder)

        def show_and_draw(number: int, request: Request, translation: Translation) -> str:
            try:
                if translation.candidates and (self._graphs_left or self._maps_left):
                    self._draw(translator, request, translation)
            except UserError:
                raise
            except Exception as error:  # for example memory: the translation is made all the same
                log.warn(f"line {number + 1} is not drawn: {type(error).__name__}: {quoted(error)}")
            return show(number, request, translation)

        return show_and_draw

    def _draw(self, translator: Translator, request: Request, translation: Translation) -> None:
        pipeline, engine, [line] = translator.pipeline, _own(translator), translator.encode([request])
        source, target = line.source, pipeline.target.in_reading_order(translation.candidates[0].tokens)
        if self._graphs_left:
            pieces = pipeline.source.piece, pipeline.target.piece
            device = device_of(engine.scorer)
            with autocast(device, engine.precision):
                graph = beam_graph(engine.decoder, engine.scorer, device, source, line.constraints, target, pieces)
            self._graphs.append(graph)
            self._graphs_left -= 1
        if self._maps_left:
            maps = attention_maps(cast(Model, engine.scorer), pipeline, source, target)
            self._maps_left -= 1
            if self.on_terminal:
                sys.stderr.write(terminal_map(maps, width=get_terminal_size().columns) + "\n")
            else:
                self._maps.append(maps)

    def write(self) -> None:
        if self.graph is not None:
            is_page = self.graph.suffix.lower() == ".html"
            write_output(self.graph, (graphs_page if is_page else graphs_json)(self._graphs).encode())
        if self.picture is not None:
            write_attention(self.picture, self._maps)


def _own(translator: Translator) -> OwnEngine:
    """The engine of a translator that was opened with `--engine torch`, as drawings need it."""
    return cast(OwnEngine, translator.engine)
