"""Open a Translator: choose its engine, and load the models.

torch is imported for our own engine only. Without torch a model is translated as its folder for CTranslate2 alone would be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, cast

from nmt import registry
from nmt.artefact import Artefact
from nmt.decoders.options import BeamOptions
from nmt.dist import World
from nmt.engines.base import MODEL_KINDS, PHRASES_DECODER, EngineRequest, kind_of_folder, open_engine
from nmt.engines.torch_engine import has_torch
from nmt.errors import ArtefactError, UserError, missing_torch, needing_torch, unknown
from nmt.options import Part, flat, make
from nmt.runs import find_model
from nmt.translate.engine import SearchEngine
from nmt.translate.glossary import Glossary
from nmt.translate.options import TranslatorOptions
from nmt.translate.texts import TextSettings, TextTranslator
from nmt.translate.translator import Translator, read_avoided

if TYPE_CHECKING:  # torch is imported when it is used
    from nmt.models.base import Model
    from nmt.translate.open_own import LoadedScorer

# Of the search for what came out broken, where the first has no such options: tokens that do not come twice, GNMT's beta, alpha.
AGAIN_NO_REPEAT: Final = 4
AGAIN_COVERAGE: Final = 0.2
AGAIN_ALPHA: Final = 1.0


class SharedModels:
    """The models of our own engine that several translators share: each is loaded once, and stays as long as this does."""

    def __init__(self) -> None:
        self._lock = Lock()  # threads of a server may open engines
        self._loaded: dict[Any, LoadedScorer] = {}

    def load(self, *arguments: Any) -> "LoadedScorer":
        """See `load_scorer`."""
        from nmt.translate.open_own import load_scorer

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

    decoder, decoder_options: the search by name, and its options by name, which are those of `nmt describe decoder NAME`
    device: auto, cpu, cuda or cuda:N; None: that of `options`
    options: how to translate; None: the defaults, in this process alone
    Raises UserError.
    """
    options = options or TranslatorOptions(replicas=1)
    if device is not None:
        options = replace(options, device=device)
    given = flat(decoder_options or {})
    known = {option.key for option in registry.options_within("decoder", decoder, registry.choice_from(given))}
    for key in given:
        if key not in known:
            hint = unknown(f"option of decoder {decoder}", key, known, f"nmt describe decoder {decoder}")
            raise UserError(f"decoder_options: {hint}")
    return open_translator([model, *more], options, registry.choose("decoder", decoder, given))


def open_translator(
    models: Sequence[str | Path],
    options: TranslatorOptions,
    part: Part,
    world: World | None = None,
    shared: SharedModels | None = None,
) -> Translator:
    """Load model folders, folders for CTranslate2 or runs, several as an ensemble, and build a Translator of them.

    part: the search
    world: the ranks that translate together; None: this process alone
    shared: models that other translators use too; None: only the engines of this one share theirs
    Raises ArtefactError, UserError for models that do not fit the precision, the engine or each other, and the errors of
    the files of a glossary and of texts to avoid.
    """
    glossary = Glossary.read(Path(options.glossary)) if options.glossary is not None else None
    avoid = read_avoided(options.avoid) if options.avoid else []  # once: the file may be a pipe
    settings = TextSettings(options.split, options.markup, glossary, options.repair)
    shared, world = shared or SharedModels(), world or World()
    if settings == TextSettings():
        return Translator(_opened(models, options, part, part, shared, world), options, avoid)
    if settings.glossary and part.name not in ("beam", PHRASES_DECODER):
        raise UserError(f"--glossary: needs --decoder beam or {PHRASES_DECODER}, and {part.name} is given")
    if settings.repair and any(kind_of_folder(find_model(Path(model))) not in MODEL_KINDS for model in models):
        raise UserError(
            "--repair: needs our own search, and an exported folder has none (give the model it was made of)"
        )
    if settings.repair and not has_torch():
        raise missing_torch("--repair")
    of_own = with_phrases(part) if settings.glossary else part
    own = {**vars(options), "split": False, "markup": "none", "glossary": None, "repair": False}
    if settings.needs_attention:
        own |= {"alignment": "soft", "raw_tokens": True}
    plain = make(TranslatorOptions, own)
    engine = _opened(models, plain, part, of_own, shared, world)
    again = replace(plain, engine="torch", capture=False)  # which a coverage penalty does not go with

    def open_repair() -> Translator:
        search = search_again(of_own, models)
        return Translator(_opened(models, again, search, search, shared, world), again, avoid)

    return TextTranslator(engine, plain, avoid, settings, cache(open_repair))


def with_phrases(part: Part) -> Part:
    """The search that takes phrases, with the options of another as far as it has them."""
    return registry.choose("decoder", PHRASES_DECODER, vars(part.options))  # which leaves out those that it lacks


@needing_torch("the search for translations that came out broken")
def search_again(part: Part, models: Sequence[str | Path]) -> Part:
    """The search for what came out broken: a beam without repetitions that looks for longer translations.

    models: that it searches with; a coverage penalty needs the attention of one. Imports torch
    """
    if not isinstance(part.options, BeamOptions):
        part = registry.choose("decoder", "beam")
    options = part.options
    more: dict[str, Any] = {
        "beam_size": 2 * options.beam_size,
        "no_repeat_ngram": options.no_repeat_ngram or AGAIN_NO_REPEAT,
        "coverage_penalty": options.coverage_penalty or (AGAIN_COVERAGE if _has_attention(models) else 0.0),
        "alpha": max(options.alpha, AGAIN_ALPHA),
    }
    return replace(part, options=replace(options, **more))


def _has_attention(models: Sequence[str | Path]) -> bool:
    """Whether one of the models has attention."""
    from nmt.models.saved import ModelFacts

    artefacts = [Artefact(find_model(Path(model)), "model", "checkpoint") for model in models]
    names = [ModelFacts.read(artefact).model for artefact in artefacts]
    return any(cast("type[Model]", registry.find("model", name).cls).has_attention for name in names)


def _opened(models: Sequence[str | Path], *request: Any) -> SearchEngine:
    """An engine of the folders of models. request: the further arguments of `_engine_request`

    A run that goes on may remove the checkpoint that was its best when it was looked for; its best is then looked for again.
    """
    folders = [find_model(Path(model)) for model in models]
    while True:
        try:
            return open_engine(_engine_request(folders, *request))
        except (ArtefactError, FileNotFoundError):
            before, folders = folders, [find_model(Path(model)) for model in models]
            if folders == before:
                raise


def _engine_request(
    models: Sequence[Path], options: TranslatorOptions, part: Part, of_own: Part, shared: SharedModels, world: World
) -> EngineRequest:
    """What an engine is to do. part: the search; of_own: the same of our own engine, which may take phrases"""
    if options.model_weights and len(models) == 1:
        raise UserError("--model-weights: has no effect with one model (leave it out)")
    if options.shortlist is not None and len(models) > 1:
        raise UserError(f"--shortlist: works with one model, and {len(models)} are given (leave it out)")
    return EngineRequest(models, list(map(kind_of_folder, models)), options, part, of_own, world, shared.load)
