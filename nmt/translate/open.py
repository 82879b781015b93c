"""Load models, and open a Translator of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import torch

from nmt import registry
from nmt.checkpoint import check_int8, load_model
from nmt.decoders.base import Decoder
from nmt.device import Precision, choose_device, keep_pages, use_threads
from nmt.dist import World
from nmt.errors import UserError, quoted
from nmt.models.base import Model
from nmt.nn.linear import remove_weight_norm
from nmt.nn.quantized import quantize
from nmt.text.pipeline import Pipeline
from nmt.translate.ensemble import Ensemble, Mean
from nmt.translate.options import TranslatorOptions
from nmt.translate.replicas import are_processes
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
        raise UserError("--model-weights: has no effect with one model (leave it out)")
    if options.shortlist is not None and len(models) > 1:
        raise UserError(f"--shortlist: works with one model, and {len(models)} are given (leave it out)")
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
    return Translator(pipeline, scorer, options, decoder, world)


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
    if not any(model.model.reads_source for model in loaded):
        message = "reads no source, and cannot translate alone (give it to --rerank, or as a further --model)"
        raise UserError(f"{quoted(first.folder)}: a {first.facts.model} {message}")
    for model in loaded:
        if model.facts.weights == "int8" and precision not in ("fp32", "int8"):
            raise UserError(
                f"--precision {precision}: {quoted(model.folder)} has 8-bit weights (leave --precision out)"
            )
    for other in others:
        if other.pipeline.hash != first.pipeline.hash:
            directions = {model.pipeline.target.settings.right_to_left for model in (first, other)}
            difference = "vocabularies or text pipelines" if len(directions) == 1 else "directions of writing"
            raise UserError(
                f"{quoted(first.folder)} and {quoted(other.folder)}: have different {difference}, and cannot translate "
                "together (train them on data of one pipeline: nmt prepare --vocabulary)"
            )
    for model in loaded:
        model.model.requires_grad_(False)
        remove_weight_norm(model.model)
        if precision == "int8":
            quantize(model.model)
    if not others:
        return first.pipeline, first.model
    try:
        return first.pipeline, Ensemble([model.model for model in loaded], weights, mean)
    except ValueError as error:
        raise UserError(f"--model-weights: {error}") from None
