"""The built-in engine, which searches with torch and supports all models, decoders and options."""

from importlib.util import find_spec

from nmt import register
from nmt.engines.base import Engine, EngineRequest
from nmt.errors import needing_torch
from nmt.log import log
from nmt.options import NoOptions
from nmt.translate.engine import SearchEngine


@register("engine", "torch", NoOptions)
class TorchSearch(Engine):
    """The built-in search with torch: all models and decoders, on CPUs and GPUs."""

    title = "the built-in search"
    order = 100

    def is_installed(self) -> bool:
        return has_torch()

    def refusal(self, request: EngineRequest) -> str:
        return ""

    def open(self, request: EngineRequest) -> SearchEngine:
        reasons = "; ".join(f"{title} is not used: {reason}" for title, reason in request.refused.items())
        with needing_torch(f"{reasons or '--engine torch is given'}. The built-in search"):
            from nmt.translate.open_built_in import open_built_in_engine

        log.detail(f"engine torch{f': {reasons}' if reasons else ''}")
        return open_built_in_engine(
            request.folders, request.options, request.phrase_search, request.load, request.world
        )


def has_torch() -> bool:
    """Whether torch is installed. Does not import it."""
    return find_spec("torch") is not None
