"""Loads models and opens the built-in engine with them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from nmt import registry
from nmt.checkpoint import load_model
from nmt.device import choose_device, default_threads, keep_pages, use_threads
from nmt.dist import World
from nmt.errors import UserError, quoted
from nmt.models.base import Model
from nmt.models.saved import FLOAT32
from nmt.nn.linear import remove_weight_norm
from nmt.options import Part
from nmt.text.pipeline import Pipeline
from nmt.translate.built_in_engine import BuiltInEngine
from nmt.translate.ensemble import Ensemble, Mean
from nmt.translate.options import MAX_DEFAULT_REPLICAS, TranslatorOptions
from nmt.translate.replicas import are_processes
from nmt.weight_formats.base import weight_format


class LoadedScorer(NamedTuple):
    """A model or an ensemble that is ready for searches, with its text pipeline."""

    pipeline: Pipeline
    scorer: Model | Ensemble


LoadScorer = Callable[[tuple[Path, ...], torch.device, str, tuple[float, ...], Mean], LoadedScorer]


def open_built_in_engine(
    models: Sequence[Path], options: TranslatorOptions, part: Part, load: LoadScorer, world: World
) -> BuiltInEngine:
    """Load model folders or runs, and build an engine from them. Several models form an ensemble.

    part: the decoder
    load: `load_scorer`, or a function that caches its results
    world: the ranks that translate together
    Raises ArtefactError, and UserError if the models do not fit the precision or each other.
    """
    keep_pages()
    device = choose_device(options.device, world.local_rank)
    threads = options.threads or default_threads()
    replicas = options.replicas or (min(threads, MAX_DEFAULT_REPLICAS) if device.type == "cpu" else 1)
    use_threads(1 if replicas > 1 and are_processes(device.type) else max(1, threads // replicas))
    loaded = load(tuple(models), device, options.precision, options.model_weights, options.ensemble)
    options = replace(options, replicas=replicas, threads=threads)
    return BuiltInEngine(loaded.pipeline, loaded.scorer, options, registry.build(part), world.local_size)


def load_scorer(
    models: tuple[Path, ...], device: torch.device, precision: str, weights: tuple[float, ...], mean: Mean
) -> LoadedScorer:
    """Load model folders or runs. Several models form an ensemble.

    weights, mean: see Ensemble
    Raises ArtefactError, and UserError if the models do not fit the precision or each other.
    """
    if (wanted := weight_format(precision)) is not None:
        wanted.check(device)
    loaded = [load_model(folder, device) for folder in models]
    first, *others = loaded
    if not any(model.model.reads_source for model in loaded):
        message = "does not read the source and cannot translate alone (use it to re-rank, or add another --model)"
        raise UserError(f"{quoted(first.folder)}: a {first.facts.model} {message}")
    for model in loaded:
        if model.facts.weights != FLOAT32 and precision not in (FLOAT32, model.facts.weights):
            raise UserError(
                f"--precision {precision}: {quoted(model.folder)} already has {model.facts.weights} weights (drop --precision)"
            )
    for other in others:
        if other.pipeline.hash != first.pipeline.hash:
            directions = {model.pipeline.target.settings.right_to_left for model in (first, other)}
            difference = (
                "vocabulary or text pipeline" if len(directions) == 1 else "writing direction (--right-to-left)"
            )
            raise UserError(
                f"{quoted(first.folder)} and {quoted(other.folder)} differ in {difference} and cannot form an ensemble "
                "(train them on data with the same pipeline: nmt prepare --vocabulary)"
            )
    for model in loaded:
        model.model.requires_grad_(False)
        remove_weight_norm(model.model)
        if wanted is not None:
            wanted.convert(model.model)
    scorer: Model | Ensemble = first.model
    first.model.temperature = first.temperature
    if others:
        try:
            scorer = Ensemble([model.model for model in loaded], weights, mean)
        except ValueError as error:
            raise UserError(f"--model-weights: {error}") from None
    return LoadedScorer(first.pipeline, scorer)
