"""The steps of a search by torch.compile."""

from typing import Any

from nmt import UserError, register
from nmt.device import autocast, device_of
from nmt.extensions.fast.search_speedups.options import CompiledSearchOptions
from nmt.models.base import models_in
from nmt.models.transformer import Transformer
from nmt.search_speedups.base import SearchSpeedup


@register("search-speedup", "compile", CompiledSearchOptions)
class CompiledSearch(SearchSpeedup):
    """The steps of a Transformer's layers, fused by torch.compile."""

    def begin(self, engine: Any, decoder: Any) -> None:
        """See SearchSpeedup."""
        with autocast(device_of(engine.scorer), engine.precision):
            for model in models_in(engine.scorer):
                _compile(model)


def _compile(model: Any) -> None:
    """Compile the steps of a model: a Transformer, or one of a plug-in that has `compile_steps`."""
    from nmt.extensions.fast.compiled_steps import compile_steps

    if isinstance(model, Transformer):
        compile_steps(model)
    elif hasattr(model, "compile_steps"):
        model.compile_steps()
    else:
        raise UserError("--compile: only the layers of a Transformer can be compiled for a search (leave it out)")
