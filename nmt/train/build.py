"""Builds a run: its model, criterion, optimizer, schedule and data, in the order of their dependencies."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch
from torch import nn

from nmt import registry
from nmt.batch import Batch
from nmt.checkpoint import NoRandomWeights, at_most
from nmt.criteria.base import Criterion, CriterionContext
from nmt.data.loader import Loader, to_batch
from nmt.data.plan import new_plan
from nmt.data.shards import PreparedData
from nmt.device import Memory, keep_pages, use_threads
from nmt.errors import ResourceError, UserError, quoted, unknown
from nmt.models.base import FLOAT32_BYTES, Model
from nmt.models.saved import ModelFacts, Vocabularies
from nmt.noises.base import Noise, NoiseContext
from nmt.optimizers.base import parameter_groups
from nmt.options import AUTO, as_dict, options_of
from nmt.quantities import size
from nmt.schedules.base import Schedule
from nmt.train.kept_weights import KeptWeights
from nmt.train.options import TrainOptions
from nmt.train.parallel import part_counts, spread
from nmt.train.periods import without_minutes
from nmt.train.progress import Progress
from nmt.train.report import NoReport, Report
from nmt.train.run import Run
from nmt.train.setup import RunSetup, try_criterion
from nmt.train.update import LossScale, SignalWatch, Updater
from nmt.train.validation import Validation
from nmt.train.weight_average import WeightAverage
from nmt.training_speedups.base import TrainingSpeedup
from nmt.translate.built_in_engine import BuiltInEngine
from nmt.translate.options import TranslatorOptions
from nmt.translate.translator import Translator

TRIED_PAIRS: Final = 2  # pairs tried at set-up; two pairs of different lengths include padding


def build_run(setup: RunSetup, parts: Any, report: NoReport | None = None) -> Run:
    """Build a run with newly initialised weights.

    parts: the chosen components (nmt.cli.command.Parts)
    report: replaces the run's own report

    The order of the steps matters:

    1. Threads and the seed are set before the first tensor and the first random number.
    2. The start components, which may add or freeze layers, run before anything uses the model's parameters.
    3. The criterion is built with that model and tried on two pairs, so that errors appear before long work.
    4. Speedups change the layers, and the model is distributed over the ranks. This may wrap and shard the parameters,
       so the optimizer and the average of the weights take them only afterwards.
    5. The report opens the run's files last, so that a run with an error creates none.
    """
    options, device, pipeline = setup.options, setup.device, setup.data.pipeline
    use_threads(options.threads)
    keep_pages()
    torch.manual_seed(options.seed)
    chosen = parts.by_kind["model"]
    vocabularies = Vocabularies(*pipeline.sizes, pipeline.joint)
    model = _new_model(parts, vocabularies, device, setup.world.local_size).to(device)
    _check_model(setup, model, chosen.name)
    starts: list[Any] = [entry.cls(options) for entry in registry.active("start", options)]
    for start in starts:
        start.change(model)
    is_new = not any(start.gives_weights for start in starts)
    context = CriterionContext(pipeline, model, options.seed)
    criterion = _new_criterion(parts, context, is_new)
    pairs = to_batch(setup.data.train, np.arange(min(TRIED_PAIRS, len(setup.data.train)))).to(device)
    scores = _scores(setup, model, criterion, pairs)
    speedups: list[TrainingSpeedup] = [entry.cls(options) for entry in registry.active("training-speedup", options)]
    for speedup in speedups:
        speedup.change_layers(model)
    objective = spread(model, criterion, setup.world, options.engine, pairs)
    optimizer: torch.optim.Optimizer = parts.build("optimizer", parameter_groups(model))
    average = _new_average(starts, model, optimizer, parts.by_kind["optimizer"].name)
    updater = _new_updater(setup, speedups, model, criterion, objective, optimizer)
    schedule: Schedule = parts.build("schedule", model.width, options.max_updates)
    loader = _new_loader(setup)
    return Run(
        options=options,
        world=setup.world,
        device=device,
        data=setup.data,
        validation=_with_translator(setup, model, parts),
        facts=ModelFacts.of(chosen.name, chosen.options, vocabularies),
        model=model,
        starts=starts,
        speedups=speedups,
        is_new=is_new,
        kept=next((start.kept for start in starts if start.kept is not None), KeptWeights()),
        context=context,
        criterion=criterion,
        scores=scores,
        optimizer=optimizer,
        average=average,
        updater=updater,
        schedule=schedule,
        loader=loader,
        settings=_settings(setup, parts, criterion, schedule, loader),
        progress=Progress(
            judged_by="loss" if options.best_by == AUTO else options.best_by,
            scale=LossScale() if options.precision == "fp16" else None,
        ),
        report=_new_report(setup) if report is None else report,
    )


def _new_model(parts: Any, vocabularies: Vocabularies, device: torch.device, processes: int) -> Model:
    """Build the model on the CPU, with newly initialised weights.

    processes: number of processes on this machine, each of which builds a model
    Raises ResourceError if the weights (and on a CPU also their gradients) would exceed the free memory.
    """
    free = Memory(torch.device("cpu")).free() // processes
    largest = free / (FLOAT32_BYTES * (2 if device.type == "cpu" else 1))
    error = ResourceError(
        f"the model has more than {largest:,.0f} parameters, too many for the {size(free)} of free memory (use smaller "
        "widths or fewer layers)"
    )
    try:
        # Random initializers on the meta device would make torch import its compiler, which takes 1.3 s.
        with at_most(largest, error), torch.random.fork_rng([]), torch.device("meta"), NoRandomWeights():
            parts.build("model", vocabularies)  # needs no memory and little time
    except Exception as failure:
        if failure is error:
            raise
        # A plug-in's model may need real tensors. Any other error occurs again below.
    return cast(Model, parts.build("model", vocabularies))


def _check_model(setup: RunSetup, model: Model, name: str) -> None:
    """Raise UserError if the model cannot be trained with these options and this data."""
    options, pipeline = setup.options, setup.data.pipeline
    if options.metrics and not model.reads_source:
        raise UserError(f"model {name} does not translate, so metrics cannot be computed (use --valid-metrics none)")
    for side in (pipeline.source, pipeline.target) if model.reads_characters else ():
        if (kind := side.settings.subword) != "char":
            data = quoted(options.data)
            raise UserError(
                f"model {name} reads characters, but {data} was prepared with --subword {kind} (use nmt prepare --subword char)"
            )
    if model.cost_is_measured:  # so that an error in the measurement appears before any work
        model.flops(*torch.ones(2, 1, dtype=torch.int64, device=setup.device))


def _new_criterion(parts: Any, context: CriterionContext, is_new: bool) -> Criterion:
    """Build the criterion. Raises UserError if the run is new but the criterion needs a trained model."""
    criterion: Criterion = parts.build("criterion", context)
    if criterion.needs_trained_model and is_new:
        why = "needs a trained model, because samples from random weights earn no reward"
        raise UserError(f"--criterion {criterion.part_name} {why} (add --init-from MODEL)")
    return criterion


def _scores(setup: RunSetup, model: Model, criterion: Criterion, pairs: Batch) -> list[str]:
    """The names of the scores that a validation computes. Raises UserError if --best-by is not among them."""
    options = setup.options
    parts_of_loss = try_criterion(model, criterion, pairs, setup.validation, options.precision)
    scores = ["loss", *options.metrics, *sorted(parts_of_loss - {"loss", *options.metrics})]
    if options.best_by not in (AUTO, *scores):
        raise unknown("score for --best-by", options.best_by, [AUTO, *scores])
    return scores


def _new_average(
    starts: Sequence[Any], model: Model, optimizer: torch.optim.Optimizer, name: str
) -> WeightAverage | None:
    """The weight average to validate and save, if there is one. Raises UserError if there are two.

    name: the optimizer's name
    """
    averages: list[WeightAverage] = [average for start in starts if (average := start.average(model)) is not None]
    if (averaged := getattr(optimizer, "averaged", None)) is not None:
        averages.append(WeightAverage(model, averaged, f"--optimizer {name}"))
    if len(averages) > 1:
        flags = " and ".join(average.flag for average in averages)
        raise UserError(f"{flags} cannot be combined, because each averages the weights (drop one of them)")
    return next(iter(averages), None)


def _new_updater(
    setup: RunSetup,
    speedups: Sequence[TrainingSpeedup],
    model: Model,
    criterion: Criterion,
    objective: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> Updater:
    """Build the object that makes updates."""
    options, counts = setup.options, part_counts(model, criterion)
    watch = SignalWatch(setup.world)
    updater = Updater(objective, optimizer, setup.world, options.precision, options.clip_norm, counts, watch)
    for speedup in speedups:
        updater = speedup.updater(updater, model, criterion)
    return updater


def _new_loader(setup: RunSetup) -> Loader:
    """Build the loader of this rank's updates. `choose_kernels` sets the size of its micro-batches."""
    options, world = setup.options, setup.world
    plan, noises = new_plan(options, setup.data.train), _new_noises(options, setup.data)
    return Loader(plan, 1, world.rank, world.size, setup.device.type, noises)


def _new_noises(options: TrainOptions, data: PreparedData) -> list[Noise]:
    """Build the noises whose options are set, in their order."""
    kinds = {name: column.kind for name, column in data.train.columns.items()}
    longest = max(int(lengths.max()) for lengths in (data.train.source_lengths, data.train.target_lengths))
    context = NoiseContext(data.pipeline, options.seed, kinds, longest)
    return [entry.cls(options, context) for entry in registry.active("noise", options)]


def _settings(setup: RunSetup, parts: Any, criterion: Criterion, schedule: Schedule, loader: Loader) -> dict[str, Any]:
    """All settings on which the run's results depend, by key, including digests of files."""
    values = as_dict(setup.options)
    lasting = [option.name for option in options_of(type(setup.options)) if option.must_stay]
    values["valid_every"] = without_minutes(values["valid_every"])
    settings = {key: values[key] for key in (*lasting, *schedule.depends_on)}
    settings |= parts.as_dict("model", "criterion", "optimizer", "schedule")
    settings |= {f"criterion.{name}": digest for name, digest in criterion.files.items()}
    if setup.validation is not None:
        settings["valid_set_sha256"] = setup.data.digest(f"valid.{setup.validation.dev.name}")
    return settings | loader.plan.settings()


def _with_translator(setup: RunSetup, model: Model, parts: Any) -> Validation | None:
    """The validation, with a translator for its validation set if it has metrics."""
    validation, options = setup.validation, TranslatorOptions(batch_tokens=setup.options.valid_batch_tokens)
    if validation is None or not validation.metrics:
        return validation
    engine = BuiltInEngine(setup.data.pipeline, model, options, parts.build("decoder"))
    return replace(validation, translator=Translator(engine, options))


def _new_report(setup: RunSetup) -> Report | NoReport:
    """The report of this rank: with files and reporters on the leader, empty on the others."""
    if not setup.world.leads:
        return NoReport()
    options, folder = setup.options, Path(setup.options.output)
    reporters: list[Any] = [entry.cls(options, folder) for entry in registry.active("reporter", options)]
    return Report(folder, reporters)
