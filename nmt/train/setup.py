"""How a run is set up: its data and device, its parts, and what is measured before the first update."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nmt import registry
from nmt.artefact import MANIFEST
from nmt.checkpoint import ModelFacts
from nmt.data.loader import Loader
from nmt.data.shards import EvaluationSet, PreparedData
from nmt.device import CAST_TO, Precision, choose_device, keep_pages, use_threads
from nmt.dist import World
from nmt.errors import UserError, quoted, unknown
from nmt.metrics.evaluate import check_tokenizer
from nmt.models.base import Vocabularies
from nmt.nn import linear
from nmt.options import as_dict
from nmt.report.training import LogOnlyReport, NoReport, Report
from nmt.runs import Checkpoints
from nmt.train.layer_wrapping import compile_layers, recompute
from nmt.train.parallel import spread
from nmt.train.probe import find_max_tokens, products
from nmt.train.run import MUST_STAY, Progress, Run, TrainOptions
from nmt.train.update import LossScale, Updater


@dataclass(frozen=True)
class RunSetup:
    """What a run stands on before its ranks have met. dev: the set to validate on, if there is one."""

    world: World
    device: torch.device
    data: PreparedData
    dev: EvaluationSet | None

    @classmethod
    def of(cls, options: TrainOptions) -> "RunSetup":
        """Raises UserError where a run cannot begin: its folder is something else, its device or data are not there."""
        world, folder = World.from_environment(), Path(options.output)
        device = choose_device(options.device, world.local_rank)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        data = training_data(options)
        dev = development_set(options, data)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{quoted(folder)}: is a file; a run is a folder (name another --output)")
        if (folder / MANIFEST).exists():
            raise UserError(f"{quoted(folder)}: is a finished artefact, not a run (name another --output)")
        return cls(world, device, data, dev)


@contextmanager
def products_as(device: torch.device, precision: Precision) -> Iterator[None]:
    """Whatever is chosen for products while the block runs is undone after it; tf32 is in use within, if that is asked for."""
    before = torch.get_float32_matmul_precision()
    if precision == "tf32" and device.type != "cuda":
        raise UserError(f"--precision tf32: a number format of NVIDIA's GPUs, and this is {device} (fp32, or bf16)")
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        with linear.using("torch"):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def training_data(options: TrainOptions) -> PreparedData:
    """The prepared data; UserError when there is nothing in it to train on."""
    data = PreparedData(Path(options.data))
    if not len(data.train):
        raise UserError(f"{quoted(options.data)}: has no training pairs (nmt prepare --train)")
    return data


def development_set(options: TrainOptions, data: PreparedData) -> EvaluationSet | None:
    """The set that validation uses, None when the data has none; UserError when one is wanted that cannot be used."""
    sets, name = data.valid, options.valid_set
    if name is not None and name not in sets:
        raise unknown("development set", name, sets)
    dev = sets[name] if name is not None else next(iter(sets.values()), None)
    if dev is None and options.patience is not None:
        raise UserError(f"{quoted(options.data)}: has no development set for --patience (nmt prepare --valid)")
    if dev is not None and next(dev.batches(1), None) is None:
        raise UserError(f"{quoted(options.data)}: development set '{dev.name}' has no pair with text on both sides")
    if dev is not None and options.valid_bleu:
        check_tokenizer(options.bleu_tokenize)
    return dev


def build_run(options: TrainOptions, parts: Any, setup: RunSetup) -> Run:
    """The run with fresh weights: model, criterion, optimizer and schedule."""
    use_threads(options.threads)
    keep_pages()
    world, device, data = setup.world, setup.device, setup.data
    pipeline = data.pipeline
    vocabularies = Vocabularies(pipeline.source.size, pipeline.target.size, pipeline.joint)
    torch.manual_seed(options.seed)
    model = parts.build("model", vocabularies).to(device)
    if options.valid_bleu and not model.reads_source:
        raise UserError(f"model {parts.chosen['model']} translates nothing (give --no-valid-bleu --best-by loss)")
    if model.cost_is_measured:  # what cannot be measured is told before any work is done
        model.flops(*torch.ones(2, 1, dtype=torch.int64, device=device))
    criterion = parts.build("criterion")
    if options.activation_checkpointing:
        recompute(model)
    if options.compile:
        compile_layers(model)
    objective = spread(model, criterion, world, options.engine)
    optimizer = parts.build("optimizer", model.parameters())
    folder, cut = Path(options.output), (options.batch_tokens, 1, options.seed)  # `settle` says of how many tokens
    loader = Loader(data.train, *cut, world.rank, world.size, pinned=device.type == "cuda")
    return Run(
        options=options,
        settings=_must_stay(options, parts),
        folder=folder,
        data=data,
        facts=ModelFacts.of(parts.chosen["model"], parts.options("model"), vocabularies),
        world=world,
        model=model,
        criterion=criterion,
        updater=Updater(objective, optimizer, world, options.precision, options.clip_norm),
        optimizer=optimizer,
        schedule=parts.build("schedule", model.width, options.max_updates),
        loader=loader,
        report=_report(options, world),
        checkpoints=Checkpoints(folder),
        progress=Progress(scale=LossScale() if options.precision == "fp16" else None),
    )


def _report(options: TrainOptions, world: World) -> Report | NoReport:
    if not world.leads:
        return NoReport()
    return LogOnlyReport() if options.dry_run else Report(Path(options.output), options.tensorboard)


def _must_stay(options: TrainOptions, parts: Any) -> Mapping[str, Any]:
    """The settings that must be the same when a run goes on, by key."""
    schedule = registry.find("schedule", parts.chosen["schedule"]).cls
    keys = (*MUST_STAY, *getattr(schedule, "depends_on", ()))
    settings: dict[str, Any] = {key: getattr(options, key) for key in keys}
    for kind in ("model", "criterion", "optimizer", "schedule"):
        settings |= {kind: parts.chosen[kind], **as_dict(parts.options(kind))}
    return settings


def settle(run: Run) -> None:
    """Choose what is measured and not given: the path of the products, and the size of the micro-batches."""
    options, found = run.options, run.progress.limit
    if run.device.type == "cpu" and options.precision in CAST_TO:
        _warn_of_slow(run, options.precision)
    if options.matmul == "onednn" and not linear.available():
        raise UserError("--matmul onednn: this torch was built without it (give auto or torch)")
    if options.matmul != "auto":
        found.matmul = options.matmul
    elif found.matmul is None or (found.matmul == "onednn" and not linear.available()):
        found.matmul = _faster_products(run)
    linear.use(found.matmul)
    asked = f"{options.max_tokens} on {run.world.size} x {run.device.type}"
    if found.asked != asked:
        if found.asked is not None:
            same = "the same gradients, but for their last bits and dropout's draws"
            run.report.line(f"micro-batches: {asked}, before {found.asked}: {same}")
        found.asked = asked
        found.max_tokens = found.max_micro_batch_tokens = _micro_batch(run)
    run.loader.max_tokens = found.max_tokens


def _micro_batch(run: Run) -> int:
    """Tokens of the largest micro-batch, padding counted: as many as asked for, or as many as the device holds."""
    options, longest = run.options, run.loader.longest()
    if options.max_tokens == "auto":
        largest = run.loader.largest_micro_batch()
        found = find_max_tokens(
            run.updater.objective, longest, largest, options.precision, run.world, run.loader.column_kinds
        )
        why = "the largest that the data asks for" if found >= largest else "memory holds no larger ones"
        run.report.line(f"micro-batches of at most {found:,} tokens, found by trial: {why}")
        return found
    if options.max_tokens < longest:
        run.report.line(
            f"--max-tokens {options.max_tokens:,}: longer pairs, of up to {longest:,}, are batches of their own"
        )
    return options.max_tokens


def _faster_products(run: Run) -> linear.Matmul:
    """The path of the float32 products of a CPU, as the leader measures it."""
    if run.device.type != "cpu" or run.options.precision in CAST_TO:
        return "torch"
    chosen, ratio = linear.measured(*products(run.model))
    agreed: linear.Matmul = "onednn" if run.world.gather(chosen.encode())[0] == b"onednn" else "torch"
    run.report.line(f"products by {agreed}: oneDNN is {ratio:.2f} times as fast as torch's own here (--matmul)")
    return agreed


def _warn_of_slow(run: Run, precision: Precision) -> None:
    """Say so when a CPU has no instructions for a 16-bit type, and is slower with it."""
    if (ratio := linear.speed_of(CAST_TO[precision], *products(run.model))) < 1:
        run.report.line(
            f"--precision {precision}: this processor is {1 / ratio:.1f} times slower with it than with fp32"
        )
