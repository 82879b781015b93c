"""CTranslate2 as an engine: decides which requests it refuses, and which export of a model it uses."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any, cast

from nmt import register
from nmt.engines.base import Engine, EngineRequest, engines
from nmt.engines.torch_engine import has_torch
from nmt.errors import quoted
from nmt.extensions.ctranslate2 import CTRANSLATE2_KIND
from nmt.options import AUTO, NoOptions
from nmt.translate.engine import SearchEngine


@register("engine", "ctranslate2", NoOptions)
class CTranslate2Search(Engine):
    """CTranslate2: greedy and beam search of Transformers on CPUs, several times faster than torch, with the same results."""

    title = "CTranslate2"
    order = 10
    folder_kinds = (CTRANSLATE2_KIND,)

    def is_installed(self) -> bool:
        return find_spec("ctranslate2") is not None

    def refusal(self, request: EngineRequest) -> str:
        from nmt.extensions.ctranslate2.engine import import_ctranslate2, refusal

        options: Any = request.options  # includes the options of wrappers
        is_export = CTRANSLATE2_KIND in request.kinds
        if options.engine == "ctranslate2" or is_export:
            import_ctranslate2()  # if it is not installed, the error says how to install it
        if request.world.size > 1:
            return "it cannot divide lines among several processes"
        if reason := refusal(options, request.search, len(request.folders)):
            return reason
        if is_export and request.phrase_search is not request.search:
            return "constraints on phrases need --engine torch"
        if is_export:
            return (
                "--shortlist works only with a model folder, not with an export"
                if options.shortlist is not None
                else ""
            )
        if options.engine == AUTO and list(request.kinds) != ["model"] and has_torch():
            return "checkpoints are searched with torch (--engine ctranslate2 exports them)"
        return ""

    def description(self, manifest: Mapping[str, Any]) -> str:
        weights, version = (quoted(manifest.get(name)) for name in ("quantization", "ctranslate2"))
        return f"transformer for CTranslate2 {version}, {weights} weights"

    def open(self, request: EngineRequest) -> SearchEngine:
        from nmt.extensions.ctranslate2.engine import CTranslate2Engine

        folder, options = request.folders[0], cast(Any, request.options)
        if CTRANSLATE2_KIND in request.kinds:
            return CTranslate2Engine(folder, options, request.search, is_served=request.is_served)
        from nmt.extensions.ctranslate2.cached import cached_export

        quantization = "int8" if options.precision == "int8" else "float32"
        export = cached_export(folder, quantization, options.shortlist, options.threads)
        if not has_torch():
            return CTranslate2Engine(export, options, request.search, is_served=request.is_served)
        of_torch = replace(request, options=replace(options, engine="torch", replicas=1))
        open_torch = partial(engines()["torch"].open, of_torch)
        takes_phrases = getattr(request.phrase_search.options, "takes_phrases", False)
        return CTranslate2Engine(export, options, request.search, open_torch, takes_phrases, request.is_served)
