"""Opens a Translator: chooses its engine, and loads the models.

Only the engine `torch` imports torch. Without torch, a model folder is used like a folder exported for CTranslate2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from nmt import registry
from nmt.dist import World
from nmt.engines.base import EngineRequest, open_engine
from nmt.errors import ArtefactError, UserError, unknown
from nmt.filters.base import texts_of_all
from nmt.options import Part, flat, make, options_of
from nmt.passes.base import Searches
from nmt.runs import find_model
from nmt.translate.engine import SearchEngine
from nmt.translate.options import TranslatorOptions
from nmt.translate.translator import Translator

if TYPE_CHECKING:  # torch is imported only when it is used
    from nmt.translate.open_built_in import LoadedScorer


class SharedModels:
    """Models of the engine `torch` that several translators share. Each is loaded once, and kept while this object exists."""

    def __init__(self) -> None:
        self._lock = Lock()  # a server opens engines from several threads
        self._loaded: dict[Any, LoadedScorer] = {}

    def load(self, *arguments: Any) -> "LoadedScorer":
        """See `load_scorer`."""
        from nmt.translate.open_built_in import load_scorer

        with self._lock:
            if arguments not in self._loaded:
                self._loaded[arguments] = load_scorer(*arguments)
            return self._loaded[arguments]


def load(
    model: str | Path,
    *more: str | Path,
    decoder: str = "beam",
    decoder_options: Mapping[str, object] | None = None,
    device: str | None = None,
    options: TranslatorOptions | None = None,
) -> Translator:
    """Load a model folder or run, or several as an ensemble, for translation and scoring from Python.

    decoder, decoder_options: name of the search and its options by name, as listed by `nmt describe decoder NAME`
    device: auto, cpu, cuda or cuda:N; None uses the device from `options`
    options: how to translate; None uses the defaults, within this process
    Raises UserError.
    """
    options = options or TranslatorOptions(replicas=1)
    if device is not None:
        options = replace(options, device=device)
    given = flat(decoder_options or {})
    known = {option.key for option in registry.options_within("decoder", decoder, registry.choice_from(given))}
    for key in given:
        if key not in known:
            hint = unknown(f"option of decoder {decoder}", key, known, f"nmt translate --decoder {decoder} --help")
            raise UserError(f"decoder_options: {hint}")
    return open_translator([model, *more], options, registry.choose("decoder", decoder, given))


def open_translator(
    models: Sequence[str | Path],
    options: TranslatorOptions,
    part: Part,
    world: World | None = None,
    shared: SharedModels | None = None,
) -> Translator:
    """Load models and build a Translator. Models are model folders, CTranslate2 folders or runs; several form an ensemble.

    part: the search component
    world: ranks that translate together; None for this process alone
    shared: the models of a server, shared with its other translators; None for a translator on its own
    Raises ArtefactError, UserError for models that do not fit the precision, the engine or each other, and errors from the
    files of filters and passes.
    """
    filter_texts = texts_of_all(options)  # called only once, because a file can be a pipe
    is_served = shared is not None
    names, shared, world = list(map(str, models)), shared or SharedModels(), world or World()
    if options.model_weights and len(names) == 1:
        raise UserError("--model-weights needs several models (add another --model, or drop --model-weights)")
    entries = registry.active("pass", options)
    passes = [entry.cls(options) for entry in entries]
    settings = {**vars(options), **{o.name: o.default for entry in entries for o in options_of(entry.options)}}
    inner, of_own = make(TranslatorOptions, settings) if passes else options, part
    for item in passes:
        inner, of_own = item.inner(inner), item.search(names, of_own)

    def open_with(options: TranslatorOptions, part: Part) -> Translator:
        return Translator(_opened(models, options, part, part, world, shared.load, is_served), options, filter_texts)

    translator = Translator(_opened(models, inner, part, of_own, world, shared.load, is_served), inner, filter_texts)
    for item in passes:
        translator = item.around(translator, Searches(names, of_own, inner, filter_texts, open_with))
    return translator


def _opened(models: Sequence[str | Path], *request: Any) -> SearchEngine:
    """Open an engine for models. request: fields of `EngineRequest` after the folders

    An active run can remove its best checkpoint after it is found but before it is loaded. If so, the best is chosen again.
    """
    folders = [find_model(Path(model)) for model in models]
    while True:
        try:
            return open_engine(EngineRequest(folders, *request))
        except (ArtefactError, FileNotFoundError):
            before, folders = folders, [find_model(Path(model)) for model in models]
            if folders == before:
                raise
