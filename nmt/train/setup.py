"""Setting up a run: its data, device and parts, and what is measured before the first update."""

import math
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from nmt import registry
from nmt.artefact import MANIFEST
from nmt.batch import Batch, MissingColumnError
from nmt.checkpoint import ModelFacts
from nmt.criteria.base import Criterion, CriterionContext, Loss
from nmt.data.loader import Loader, to_batch
from nmt.data.shards import EvaluationSet, PreparedData
from nmt.device import CAST_TO, Precision, autocast, choose_device, keep_pages, use_threads
from nmt.dist import World
from nmt.errors import UserError, quoted, unknown
from nmt.models.base import Model, Vocabularies
from nmt.nn import matmul
from nmt.optimizers.base import parameter_groups
from nmt.report.training import LogOnlyReport, NoReport, Report
from nmt.runs import Checkpoints
from nmt.train.layer_wrapping import compile_layers, recompute
from nmt.train.options import MUST_STAY, TrainOptions
from nmt.train.parallel import Objective, part_counts, spread
from nmt.train.probe import find_max_tokens, products
from nmt.train.run import Progress, Run
from nmt.train.update import LossScale, Updater
from nmt.train.validation import Validation
from nmt.translate.open import build_translator
from nmt.translate.options import TranslatorOptions

TRIED_PAIRS: Final = 2  # at set-up: of two lengths, one has padding


@dataclass(frozen=True)
class RunSetup:
    """What a run is built from, known before its ranks meet. validation: None without a development set"""

    world: World
    device: torch.device
    data: PreparedData
    validation: Validation | None

    @classmethod
    def of(cls, options: TrainOptions) -> "RunSetup":
        """Raises UserError for an output that cannot be a run, and for a device or data that cannot be used."""
        world, folder = World.from_environment(), Path(options.output)
        device = choose_device(options.device, world.local_rank)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        data, validation = open_data(options)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{quoted(folder)}: is a file; a run is a folder (name another --output)")
        if (folder / MANIFEST).exists():
            raise UserError(f"{quoted(folder)}: is a finished artefact, not a run (name another --output)")
        return cls(world, device, data, validation)


@contextmanager
def matmul_precision(device: torch.device, precision: Precision) -> Iterator[None]:
    """Use tf32 products inside the block if asked for; the choice of products is undone after it."""
    before = torch.get_float32_matmul_precision()
    if precision == "tf32" and device.type != "cuda":
        raise UserError(f"--precision tf32: a number format of NVIDIA's GPUs, and this is {device} (fp32, or bf16)")
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        with matmul.using("torch"):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def open_data(options: TrainOptions) -> tuple[PreparedData, Validation | None]:
    """The prepared data, and its development set with metrics and no translator; None without a development set.

    Raises UserError for data without training pairs, and for a set or a metric that cannot be used.
    """
    data = PreparedData(Path(options.data))
    if not len(data.train):
        raise UserError(f"{quoted(options.data)}: has no training pairs (nmt prepare --train)")
    sets, name = data.valid, options.valid_set
    if name is not None and name not in sets:
        raise unknown("development set", name, sets)
    dev: EvaluationSet | None = sets[name] if name is not None else next(iter(sets.values()), None)
    if dev is None:
        if options.patience is not None:
            raise UserError(f"{quoted(options.data)}: has no development set for --patience (nmt prepare --valid)")
        return data, None
    if next(dev.batches(1), None) is None:
        raise UserError(f"{quoted(options.data)}: development set '{dev.name}' has no pair with text on both sides")
    settings = {"bleu": {"tokenize": options.bleu_tokenize}}
    metrics = {
        name: registry.build(registry.choose("metric", name, settings.get(name, {}))) for name in options.metrics
    }
    for metric in metrics.values():
        metric.check()
    return data, Validation(dev, metrics)


def build_run(options: TrainOptions, parts: Any, setup: RunSetup) -> Run:
    """The run with fresh weights: model, criterion, optimizer and schedule."""
    use_threads(options.threads)
    keep_pages()
    world, device, data = setup.world, setup.device, setup.data
    pipeline = data.pipeline
    vocabularies = Vocabularies(pipeline.source.size, pipeline.target.size, pipeline.joint)
    torch.manual_seed(options.seed)
    model = parts.build("model", vocabularies).to(device)
    if options.metrics and not model.reads_source:
        raise UserError(f"model {parts.chosen['model']} translates nothing (give --no-valid-bleu --best-by loss)")
    if model.cost_is_measured:  # an error of the measurement comes before any work
        model.flops(*torch.ones(2, 1, dtype=torch.int64, device=device))
    context = CriterionContext(pipeline, model)
    criterion = parts.build("criterion", context)
    pairs = to_batch(data.train, np.arange(min(TRIED_PAIRS, len(data.train)))).to(device)
    validation = setup.validation
    _check_best_by(options, _try_criterion(model, criterion, pairs, validation, options.precision))
    if options.activation_checkpointing:
        recompute(model)
    if options.compile:
        compile_layers(model)
    objective = spread(model, criterion, world, options.engine, pairs)
    optimizer = parts.build("optimizer", parameter_groups(model))
    counts = part_counts(model, criterion)
    schedule = parts.build("schedule", model.width, options.max_updates)
    must_stay = (*MUST_STAY, *getattr(schedule, "depends_on", ()))
    settings: dict[str, Any] = {key: getattr(options, key) for key in must_stay}
    if validation is not None and validation.metrics:
        translating = TranslatorOptions(batch_tokens=options.valid_batch_tokens)
        translator = build_translator(pipeline, model, translating, parts.build("decoder"))
        validation = replace(validation, translator=translator)
    plan = (options.batch_tokens, 1, options.seed)  # `choose_kernels` sets the tokens of a micro-batch
    return Run(
        options=options,
        settings=settings | parts.as_dict("model", "criterion", "optimizer", "schedule"),
        folder=Path(options.output),
        data=data,
        facts=ModelFacts.of(parts.chosen["model"], parts.options("model"), vocabularies),
        world=world,
        model=model,
        criterion=criterion,
        context=context,
        updater=Updater(objective, optimizer, world, options.precision, options.clip_norm, counts),
        optimizer=optimizer,
        schedule=schedule,
        loader=Loader(data.train, *plan, world.rank, world.size, pinned=device.type == "cuda"),
        validation=validation,
        report=_report(options, world),
        checkpoints=Checkpoints(Path(options.output)),
        progress=Progress(scale=LossScale() if options.precision == "fp16" else None),
    )


def _try_criterion(
    model: Model, criterion: Criterion, pairs: Batch, validation: Validation | None, precision: Precision
) -> Set[str]:
    """Try the criterion on training pairs and a development pair, without gradient; return the names of its parts.

    Weights, buffers and random state stay as they were. Raises UserError for a column that a set does not have, and for
    counts that are not those of `Criterion.counts`.
    """
    device, objective = pairs.source.device, Objective(model, criterion)
    buffers = [buffer.clone() for buffer in model.buffers()]
    forked = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(forked), torch.no_grad(), autocast(device, precision):
        loss: Loss = objective(pairs)
        _check_counts(loss, criterion, pairs)
        if validation is not None:
            model.eval()
            try:
                objective(to_batch(validation.dev.corpus, next(validation.dev.batches(1))).to(device))
            except MissingColumnError as error:
                column, name = quoted(error.name), quoted(validation.dev.name)
                mend = f'test `"{column}" in batch` in the criterion, or use nmt prepare --hold-out'
                raise UserError(f"development set '{name}' has no column '{column}' ({mend})") from None
            finally:
                model.train()
    for buffer, value in zip(model.buffers(), buffers, strict=True):
        buffer.copy_(value)
    return {*loss.trained, *loss.reported}


def _check_counts(loss: Loss, criterion: Criterion, batch: Batch) -> None:
    """Raises UserError where the count of a trained part is not the one that `Criterion.counts` gives."""
    for name, count in criterion.counts(batch).items():
        if name in loss.trained and not math.isclose(found := float(loss.trained[name].count), count, rel_tol=1e-4):
            message = f"the count of part '{quoted(name)}' is {found:g}, counts() gives {float(count):g}"
            raise UserError(f"{message} (make them the same, see `Criterion.counts`)")


def _check_best_by(options: TrainOptions, parts: Set[str]) -> None:
    """Raises UserError unless --best-by is a metric of the validation, the loss, or one of its parts."""
    known = ["loss", *options.metrics, *sorted(parts - {"loss", *options.metrics})]
    if options.best_by not in known:
        raise unknown("score for --best-by", options.best_by, known)


def _report(options: TrainOptions, world: World) -> Report | NoReport:
    if not world.leads:
        return NoReport()
    return LogOnlyReport() if options.dry_run else Report(Path(options.output), options.tensorboard)


def choose_kernels(run: Run) -> None:
    """Choose the path of the products and the size of the micro-batches, by measuring where no option decides."""
    options, limit = run.options, run.progress.limit
    if run.device.type == "cpu" and options.precision in CAST_TO:
        ratio = matmul.speedup_of_type(CAST_TO[options.precision], *products(run.model))
        if ratio < 1:
            slower = f"this processor is {1 / ratio:.1f} times slower with it than with fp32"
            run.report.line(f"--precision {options.precision}: {slower}")
    if options.matmul == "onednn" and not matmul.onednn_available():
        raise UserError("--matmul onednn: this torch was built without it (give auto or torch)")
    if options.matmul != "auto":
        limit.matmul = options.matmul
    elif limit.matmul is None or (limit.matmul == "onednn" and not matmul.onednn_available()):
        limit.matmul = _faster_products(run)
    matmul.use(limit.matmul)
    asked = f"{options.max_tokens} on {run.world.size} x {run.device.type}"
    if limit.asked != asked:
        if limit.asked is not None:
            same = "the same gradients, but for their last bits and dropout's draws"
            run.report.line(f"micro-batches: {asked}, before {limit.asked}: {same}")
        limit.asked = asked
        limit.max_tokens = limit.max_micro_batch_tokens = _max_tokens(run)
    run.loader.max_tokens = limit.max_tokens


def _max_tokens(run: Run) -> int:
    """Tokens of a micro-batch, padding counted: as the option says, or as many as the device holds."""
    options, longest = run.options, run.loader.longest()
    if options.max_tokens == "auto":
        largest = run.loader.largest_micro_batch()
        max_tokens = find_max_tokens(run.updater.objective, run.loader, largest, options.precision, run.world)
        why = "the largest that the data asks for" if max_tokens >= largest else "memory holds no larger ones"
        run.report.line(f"micro-batches of at most {max_tokens:,} tokens, found by trial: {why}")
        return max_tokens
    if options.max_tokens < longest:
        longer = f"longer pairs, of up to {longest:,}, are batches of their own"
        run.report.line(f"--max-tokens {options.max_tokens:,}: {longer}")
    return options.max_tokens


def _faster_products(run: Run) -> matmul.Matmul:
    """The faster path of float32 products on a CPU, as the leader measures it."""
    if run.device.type != "cpu" or run.options.precision in CAST_TO:
        return "torch"
    faster, ratio = matmul.measured(*products(run.model))
    agreed: matmul.Matmul = "onednn" if run.world.gather(faster.encode())[0] == b"onednn" else "torch"
    run.report.line(f"products by {agreed}: oneDNN is {ratio:.2f} times as fast as torch's own here (--matmul)")
    return agreed
