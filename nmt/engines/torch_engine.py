"""Our own search in torch, as an engine: every model, every search, every option."""

from importlib.util import find_spec

from nmt import register
from nmt.engines.base import Engine, EngineRequest
from nmt.errors import needing_torch
from nmt.log import log
from nmt.options import NoOptions
from nmt.translate.engine import SearchEngine


@register("engine", "torch", NoOptions)
class TorchSearch(Engine):
    """Our own search: every model and every decoder, on CPUs and GPUs."""

    title = "our own search"
    order = 100

    def is_installed(self) -> bool:
        return has_torch()

    def refusal(self, request: EngineRequest) -> str:
        return ""

    def open(self, request: EngineRequest) -> SearchEngine:
        reasons = "; ".join(f"{title} is not used: {reason}" for title, reason in request.refused.items())
        with needing_torch(f"{reasons or '--engine torch is given'}. Our own search"):
            from nmt.translate.open_own import open_own_engine

        log.detail(f"engine torch{f': {reasons}' if reasons else ''}")
        return open_own_engine(request.folders, request.options, request.phrase_search, request.load, request.world)


def has_torch() -> bool:
    """Whether torch is installed. It is not imported."""
    return find_spec("torch") is not None
