"""The steps of a search as CUDA graphs."""

from typing import Any

from nmt import UserError, register
from nmt.device import autocast, device_of
from nmt.extensions.fast.search_speedups.options import CapturedSearchOptions
from nmt.models.base import Model, models_in
from nmt.models.transformer import Transformer
from nmt.search_speedups.base import SearchSpeedup


@register("search-speedup", "capture", CapturedSearchOptions)
class CapturedSearch(SearchSpeedup):
    """The steps of a Transformer's layers, replayed as CUDA graphs."""

    def begin(self, engine: Any, decoder: Any) -> None:
        """See SearchSpeedup."""
        device = device_of(engine.scorer)
        if device.type != "cuda":
            raise UserError(f"--capture: CUDA graphs need a GPU, and this is {device} (leave it out)")
        if getattr(decoder.options, "coverage_penalty", None):
            raise UserError("--capture: has no effect with --coverage-penalty, which records attention (leave it out)")
        with autocast(device, engine.precision):
            for model in models_in(engine.scorer):
                _capture(model)


def _capture(model: Model) -> None:
    from nmt.extensions.fast.captured_steps import capture_steps

    if not isinstance(model, Transformer):
        raise UserError("--capture: only the layers of a Transformer can be captured for a search (leave it out)")
    capture_steps(model)
