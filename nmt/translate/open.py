"""Load models, and open a Translator of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from nmt import registry
from nmt.checkpoint import check_int8, load_model
from nmt.decoders.base import Decoder
from nmt.device import choose_device, keep_pages, use_threads
from nmt.dist import World
from nmt.errors import UserError, quoted, unknown
from nmt.models.base import Model
from nmt.nn.linear import remove_weight_norm
from nmt.nn.quantized import quantize
from nmt.options import flat
from nmt.translate.ensemble import Ensemble
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
    given = flat(decoder_options or {})
    known = {option.key for option in registry.options_within("decoder", decoder, registry.choice_from(given))}
    for key in given:
        if key not in known:
            hint = unknown(f"option of decoder {decoder}", key, known, f"nmt describe decoder {decoder}")
            raise UserError(f"decoder_options: {hint}")
    return open_translator([model, *more], options, registry.build(registry.choose("decoder", decoder, given)))


def open_translator(
    models: Sequence[str | Path], options: TranslatorOptions, decoder: Decoder, world: World | None = None
) -> Translator:
    """Load model folders or runs, several as an ensemble, and build a Translator of them.

    world: the ranks that translate together; None: this process alone
    Raises ArtefactError, and UserError for models that do not fit the precision or each other.
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
    if options.precision == "int8":
        check_int8(device)
    loaded = [load_model(Path(folder), device) for folder in models]
    first, *others = loaded
    if not any(model.model.reads_source for model in loaded):
        message = "reads no source, and cannot translate alone (give it to --rerank, or as a further --model)"
        raise UserError(f"{quoted(first.folder)}: a {first.facts.model} {message}")
    for model in loaded:
        if model.facts.weights == "int8" and options.precision not in ("fp32", "int8"):
            raise UserError(
                f"--precision {options.precision}: {quoted(model.folder)} has 8-bit weights (leave --precision out)"
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
        if options.precision == "int8":
            quantize(model.model)
    scorer: Model | Ensemble = first.model
    if others:
        try:
            scorer = Ensemble([model.model for model in loaded], options.model_weights, options.ensemble)
        except ValueError as error:
            raise UserError(f"--model-weights: {error}") from None
    options = replace(options, replicas=replicas, threads=threads)
    return Translator(first.pipeline, scorer, options, decoder, world)
