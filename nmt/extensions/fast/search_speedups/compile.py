"""Compiles the decoder layers with torch.compile for searches."""

from functools import cached_property, partial
from typing import Any, Final

import torch
from torch import Tensor

from nmt import UserError, register
from nmt.device import autocast, device_of
from nmt.extensions.fast.nn.quantized import Int8Linear
from nmt.extensions.fast.search_speedups.options import CompiledSearchOptions
from nmt.models.base import State, models_in
from nmt.models.transformer import Transformer, TransformerSearch
from nmt.search_speedups.base import SearchSpeedup

MAX_COMPILED_GRAPHS: Final = 64  # maximum for each compiled function


@register("search-speedup", "compile", CompiledSearchOptions)
class CompiledSearch(SearchSpeedup):
    """Fuses the search steps of a Transformer's layers with torch.compile."""

    def begin(self, engine: Any, decoder: Any) -> None:
        """See SearchSpeedup."""
        with autocast(device_of(engine.scorer), engine.precision):
            for model in models_in(engine.scorer):
                of_plugin: Any = getattr(model, "compile_steps", None)
                if isinstance(model, Transformer):
                    compile_steps(model)
                elif of_plugin is not None:
                    of_plugin()
                else:
                    raise UserError("when translating, --compile supports only Transformers (drop --compile)")


def allow_graphs() -> None:
    """Raise the limit of 8 graphs per function, beyond which torch.compile silently stops compiling."""
    from torch._dynamo import config

    config.recompile_limit = MAX_COMPILED_GRAPHS


def compile_steps(model: Transformer) -> None:
    """Compile the search steps of the layers. One graph serves all lengths and batch sizes except 1, which needs another graph.

    Raises UserError if the steps cannot be compiled.
    """
    if any(isinstance(module, Int8Linear) for module in model.modules()):
        raise UserError("--compile does not support 8-bit weights (drop --compile, or use --precision fp32)")
    if any(not layer.feed_forward.can_be_captured for layer in model.decoder_layers):
        raise UserError(
            f"--compile does not support --ffn {model.options.ffn}, whose batch sizes depend on the text (drop --compile)"
        )
    allow_graphs()
    layers = [torch.compile(step, dynamic=True) for step in model.search_steps()]
    model.new_search = partial(SearchOfCompiledSteps, layers=layers)


class SearchOfCompiledSteps(TransformerSearch):
    """A search with compiled steps. Steps whose attention is recorded are not compiled, because compiled layers cannot record."""

    @cached_property
    def _recording(self) -> TransformerSearch:
        return TransformerSearch(self.model, self.output)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See Scorer."""
        return self._recording.step(tokens, state) if state.watched else super().step(tokens, state)
