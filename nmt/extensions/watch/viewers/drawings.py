"""Pictures of translations: attention maps (--attention) and graphs of the beam search (--beam-graph)."""

import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import Final, cast

from nmt import register
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
from nmt.extensions.watch.viewers.options import DrawingOptions
from nmt.files import write_output
from nmt.log import log
from nmt.models.base import Model
from nmt.translate.built_in_engine import BuiltInEngine
from nmt.translate.requests import Request
from nmt.translate.results import Translation
from nmt.translate.translator import Translator
from nmt.viewers.base import Viewer

TERMINAL: Final = "terminal"


@register("viewer", "drawings", DrawingOptions)
class Drawings(Viewer):
    """Attention maps and beam graphs of the first lines, printed to the terminal immediately, or written to files at the end."""

    def __init__(self, options: DrawingOptions) -> None:
        attention, beam_graph = options.attention, options.beam_graph
        if options.is_drawn:
            self.settings = {"engine": "torch"}
        self.on_terminal = attention == TERMINAL
        self.picture = None if attention is None or self.on_terminal else Path(attention)
        self.graph = None if beam_graph is None else Path(beam_graph)
        self._maps_left = 0 if attention is None else options.attention_lines
        self._graphs_left = 0 if beam_graph is None else options.attention_lines
        if self.picture is not None:
            check_picture(self.picture)
            self._maps_left = options.attention_lines if self.picture.suffix.lower() == ".html" else 1
        if self.graph is not None:
            check_file_name(self.graph, GRAPH_ENDINGS, "a beam graph is written")
        self._maps: list[AttentionMaps] = []
        self._graphs: list[BeamGraph] = []

    def begin(self, translator: Translator) -> None:
        self._translator = translator
        if self.graph is not None:
            check_search(_own(translator).decoder)

    def see(self, number: int, request: Request, translation: Translation) -> None:
        try:
            if translation.candidates and (self._graphs_left or self._maps_left):
                self._draw(self._translator, request, translation)
        except UserError:
            raise
        except Exception as error:  # such as running out of memory; the translation itself is not affected
            log.warn(f"line {number + 1} could not be drawn: {type(error).__name__}: {quoted(error)}")

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

    def end(self) -> None:
        if self.graph is not None:
            is_page = self.graph.suffix.lower() == ".html"
            write_output(self.graph, (graphs_page if is_page else graphs_json)(self._graphs).encode())
        if self.picture is not None:
            write_attention(self.picture, self._maps)


def _own(translator: Translator) -> BuiltInEngine:
    """The engine of a translator that was opened with `--engine torch`, which pictures need."""
    return cast(BuiltInEngine, translator.engine)
