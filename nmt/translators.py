"""Open a Translator: choose its engine, and load the models.

torch is imported for our own engine only. Without torch a model is translated as its folder for CTranslate2 alone would be.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, cast

from nmt import registry
from nmt.artefact import Artefact
from nmt.decoders.options import BeamOptions
from nmt.dist import World
from nmt.errors import ArtefactError, ResourceError, UserError, missing_torch, needing_torch, quoted, unknown
from nmt.extensions.ctranslate2.engine import (
    CTRANSLATE2_KIND,
    CTranslate2Engine,
    has_torch,
    import_ctranslate2,
    refusal,
)
from nmt.log import log
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
    from nmt.translate.own_engine import OwnEngine

PHRASES_DECODER: Final = "constrained-beam"
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
        engine = _opened(models, lambda folders: _open_engine(folders, options, part, part, shared, world))
        return Translator(engine, options, avoid)
    if settings.glossary and part.name not in ("beam", PHRASES_DECODER):
        raise UserError(f"--glossary: needs --decoder beam or {PHRASES_DECODER}, and {part.name} is given")
    if settings.repair and any(_kind(find_model(Path(model))) == CTRANSLATE2_KIND for model in models):
        raise UserError(
            "--repair: needs our own search, and a folder for CTranslate2 has none (give the model it was made of)"
        )
    if settings.repair and not has_torch():
        raise missing_torch("--repair")
    of_own = with_phrases(part) if settings.glossary else part
    own = {**vars(options), "split": False, "markup": "none", "glossary": None, "repair": False}
    if settings.needs_attention:
        own |= {"alignment": "soft", "raw_tokens": True}
    plain = make(TranslatorOptions, own)
    engine = _opened(models, lambda folders: _open_engine(folders, plain, part, of_own, shared, world))
    again = replace(plain, engine="own", capture=False)  # which a coverage penalty does not go with

    def open_repair() -> Translator:
        search = search_again(of_own, models)
        engine = _opened(models, lambda folders: _open_engine(folders, again, search, search, shared, world))
        return Translator(engine, again, avoid)

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


def _opened(models: Sequence[str | Path], open_engine: Callable[[list[Path]], SearchEngine]) -> SearchEngine:
    """An engine of the folders of models.

    A run that goes on may remove the checkpoint that was its best when it was looked for; its best is then looked for again.
    """
    folders = [find_model(Path(model)) for model in models]
    while True:
        try:
            return open_engine(folders)
        except (ArtefactError, FileNotFoundError):
            before, folders = folders, [find_model(Path(model)) for model in models]
            if folders == before:
                raise


def _open_engine(
    folders: Sequence[Path],
    options: TranslatorOptions,
    part: Part,
    of_own: Part,
    shared: SharedModels,
    world: World,
) -> SearchEngine:
    """The engine of a translator. part: the search; of_own: the same of our own engine, which may take phrases"""
    if options.model_weights and len(folders) == 1:
        raise UserError("--model-weights: has no effect with one model (leave it out)")
    if options.shortlist is not None and len(folders) > 1:
        raise UserError(f"--shortlist: works with one model, and {len(folders)} are given (leave it out)")
    kinds = list(map(_kind, folders))
    if options.engine == "ctranslate2" or CTRANSLATE2_KIND in kinds:
        import_ctranslate2()  # raises if it is not installed, and says how to install it
    reason = refusal(options, part, len(folders)) if world.size == 1 else "it does not share lines with other processes"
    if CTRANSLATE2_KIND in kinds:
        reason = reason or ("--engine own cannot read it" if options.engine == "own" else "")
        reason = reason or ("--shortlist is for models" if options.shortlist is not None else "")
        reason = reason or ("--glossary needs our own search" if of_own is not part else "")
        if reason:
            raise UserError(f"{quoted(folders[0])}: is a folder for CTranslate2: {reason}")
        return CTranslate2Engine(folders[0], options, part)

    def own(settings: TranslatorOptions) -> "OwnEngine":
        with needing_torch(f"CTranslate2 is not used: {reason or '--engine own is given'}. Our own search"):
            from nmt.translate.open_own import open_own_engine

        return open_own_engine(folders, settings, of_own, shared.load, world)

    is_complete = has_torch()
    if not reason and options.engine == "auto" and kinds != ["model"] and is_complete:
        reason = "a checkpoint is searched by our own engine (--engine ctranslate2 exports it)"
    if options.engine == "ctranslate2" and reason:
        raise UserError(f"--engine ctranslate2: {reason} (leave it out)")
    if options.engine != "own" and not reason:
        try:
            export, takes_phrases = _export(folders[0], options), of_own.name == PHRASES_DECODER
            if not is_complete:
                return CTranslate2Engine(export, options, part)
            open_own = partial(own, replace(options, replicas=1))
            return CTranslate2Engine(export, options, part, open_own, takes_phrases)
        except UserError as error:
            if options.engine == "ctranslate2" or not is_complete:
                raise
            reason = str(error)
            # Only what the user can fix is worth a line: our own engine searches other models anyway.
            if isinstance(error, ResourceError):
                log.info(f"CTranslate2 is not used, and translating may be slower: {reason}")
    log.detail(f"engine own{f': CTranslate2 is not used: {reason}' if reason else ''}")
    return own(options)


def _kind(folder: Path) -> str:
    """The kind of a model folder. Raises ArtefactError for a folder that is none."""
    return str(Artefact(folder, "model", "checkpoint", CTRANSLATE2_KIND).manifest["kind"])


def _export(model: Path, options: TranslatorOptions) -> Path:
    from nmt.extensions.ctranslate2.cached import cached_export

    quantization = "int8" if options.precision == "int8" else "float32"
    return cached_export(model, quantization, options.shortlist, options.threads)
