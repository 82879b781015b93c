"""Assemble a Translator from models, a search and options."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import torch

from nmt import registry
from nmt.checkpoint import check_int8, load_model
from nmt.data.shortlist import Shortlist
from nmt.decoders.base import Decoder
from nmt.device import Memory, Precision, autocast, choose_device, device_of, keep_pages, use_threads
from nmt.dist import World
from nmt.errors import UserError, quoted
from nmt.models.base import Model
from nmt.nn.quantized import quantize
from nmt.text.corpus import read_lines
from nmt.text.pipeline import Pipeline
from nmt.translate.alignment import read_dictionary
from nmt.translate.batch_size import auto_batch_tokens
from nmt.translate.ensemble import Ensemble, Mean
from nmt.translate.options import TranslatorOptions
from nmt.translate.replicas import are_processes
from nmt.translate.rerank import Reranker, RerankModel
from nmt.translate.results import ResultOptions
from nmt.translate.translator import Translator

MAX_DEFAULT_REPLICAS: Final = 16  # each has the tensors of a batch in memory


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
    part = registry.choose_strictly("decoder", decoder, decoder_options or {}, "decoder_options")
    return open_translator([model, *more], options, registry.build(part))


def open_translator(
    models: Sequence[str | Path], options: TranslatorOptions, decoder: Decoder, world: World | None = None
) -> Translator:
    """Load model folders or runs, several as an ensemble, and build a Translator of them.

    world: the ranks that translate together; None: this process alone
    Raises UserError.
    """
    if options.model_weights and len(models) == 1:
        raise UserError("--model-weights: has no effect with one model")
    if options.shortlist is not None and len(models) > 1:
        raise UserError("--shortlist: needs a single model")
    world = world or World()
    keep_pages()
    device = choose_device(options.device, world.local_rank)
    threads = options.threads or torch.get_num_threads()
    replicas = options.replicas or (min(threads, MAX_DEFAULT_REPLICAS) if device.type == "cpu" else 1)
    use_threads(1 if replicas > 1 and are_processes(device.type) else max(1, threads // replicas))
    pipeline, scorer = load_scorer(
        list(map(Path, models)), device, options.model_weights, options.ensemble, options.precision
    )
    options = replace(options, replicas=replicas, threads=threads)
    return build_translator(pipeline, scorer, options, decoder, world)


def build_translator(
    pipeline: Pipeline,
    scorer: Model | Ensemble,
    options: TranslatorOptions,
    decoder: Decoder,
    world: World | None = None,
) -> Translator:
    """Build a Translator around loaded models, on their device. replicas, threads: None is 1, and torch's setting

    Raises UserError.
    """
    world, device = world or World(), device_of(scorer)
    if options.shortlist is not None and not decoder.takes_shortlist:
        raise UserError("--shortlist: not for sampling and mbr (give --decoder beam, or another)")
    avoid = tuple(line for line in read_lines(Path(options.avoid)) if line.strip()) if options.avoid else ()
    if avoid and pipeline.target.settings.right_to_left:
        raise UserError("--avoid: the model writes from right to left, and takes no texts to avoid")
    precision: Precision = "fp32" if options.precision == "int8" else options.precision
    if options.compile:
        with autocast(device, precision):
            scorer.compile_steps()
    shortlist = None
    if options.shortlist is not None:
        shortlist = Shortlist.load(Path(options.shortlist), pipeline.hash, pipeline.sizes)
    n_best, replicas = decoder.n_best, options.replicas or 1
    if options.rerank:
        decoder = _with_candidates(decoder, options.rerank_candidates)
    size = options.batch_tokens
    if size == "auto":
        sharing = world.local_size if device.type == "cpu" else 1  # ranks that have the same memory
        size = auto_batch_tokens(scorer, Memory(device), decoder.paths, replicas * sharing)
    reranker = None
    if options.rerank:
        models = [RerankModel.load(Path(folder), device, pipeline) for folder in options.rerank]
        reranker = Reranker(models, options.rerank_weights, decoder, n_best, size, options.max_source_length)
    dictionary = read_dictionary(Path(options.unk_dictionary)) if options.unk_dictionary else {}
    has_alignment, replacements = options.alignment is not None, dictionary if options.replace_unk else None
    result_options = ResultOptions(options.word_scores, has_alignment, options.raw_tokens, replacements)
    return Translator(
        pipeline,
        scorer,
        decoder,
        size,
        max_source_length=options.max_source_length,
        precision=precision,
        result_options=result_options,
        avoid=avoid,
        replicas=replicas,
        threads=max(1, (options.threads or torch.get_num_threads()) // replicas),
        shortlist=shortlist,
        reranker=reranker,
    )


def _with_candidates(decoder: Decoder, num_candidates: int | None) -> Decoder:
    """The same search with more candidates a line, to be re-ranked. num_candidates: None is the beam size"""
    options: Any = getattr(decoder, "options", None)
    count = max(decoder.n_best, num_candidates or getattr(options, "beam_size", 1))
    if not hasattr(options, "n_best") or count == 1:
        instead = "--rerank-candidates" if hasattr(options, "n_best") else "--decoder beam"
        raise UserError(f"--rerank: the search gives one translation of a line, and needs several (give {instead})")
    try:
        return type(decoder)(replace(options, n_best=count))  # type: ignore[call-arg]  # a decoder is built by its options
    except ValueError as error:
        raise UserError(f"--rerank-candidates: {error}") from None


def load_scorer(
    folders: Sequence[Path],
    device: torch.device,
    weights: Sequence[float] = (),
    mean: Mean = "log-probabilities",
    precision: Precision | Literal["int8"] = "fp32",
) -> tuple[Pipeline, Model | Ensemble]:
    """The text pipeline and the model of a folder, or the ensemble of several.

    weights, mean: see Ensemble
    precision: int8 quantizes the weights
    Raises ArtefactError, and UserError for models that do not fit the precision or each other.
    """
    if precision == "int8":
        check_int8(device)
    loaded = [load_model(folder, device) for folder in folders]
    first, *others = loaded
    for model in loaded:
        if model.facts.weights == "int8" and precision not in ("fp32", "int8"):
            raise UserError(f"{quoted(model.folder)}: has 8-bit weights, which --precision {precision} cannot use")
    for other in others:
        if other.pipeline.hash != first.pipeline.hash:
            directions = {model.pipeline.target.settings.right_to_left for model in (first, other)}
            difference = "vocabularies or text pipelines" if len(directions) == 1 else "directions of writing"
            raise UserError(f"{quoted(first.folder)} and {quoted(other.folder)}: have different {difference}")
    for model in loaded:
        model.model.requires_grad_(False)
        if precision == "int8":
            quantize(model.model)
    if not others:
        return first.pipeline, first.model
    try:
        return first.pipeline, Ensemble([model.model for model in loaded], weights, mean)
    except ValueError as error:
        raise UserError(f"--model-weights: {error}") from None
