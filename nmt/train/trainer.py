"""The training loop, and how a run is set up for it."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import torch

from nmt import registry
from nmt.artefact import MANIFEST, Lock, write_file
from nmt.checkpoint import ModelFacts
from nmt.data.loader import Loader, UpdateBatches, ahead
from nmt.data.shards import EvaluationSet, PreparedData
from nmt.device import CAST_TO, Precision, allow_tf32, choose_device, keep_pages
from nmt.dist import World
from nmt.errors import DivergedError, Interrupted, UserError, quoted, unknown
from nmt.infer.evaluate import check_tokenizer
from nmt.infer.translator import Translator
from nmt.models.base import Model, Vocabularies
from nmt.nn import linear
from nmt.options import as_dict, to_toml
from nmt.report import NoReport, Report, Window
from nmt.report import Progress as Shown
from nmt.runs import Checkpoints
from nmt.signals import Signals
from nmt.train.every import Alarm, Period
from nmt.train.parallel import spread
from nmt.train.run import MUST_STAY, Progress, Run, TrainOptions, seed_of
from nmt.train.stacks import compile_layers, graphs_compiled, recompute
from nmt.train.trial import find_max_tokens, products
from nmt.train.update import LossScale, Stats, Updater
from nmt.train.validation import Scores, validate

SETTINGS: Final = "settings.toml"
SKIPS_THAT_END_A_RUN: Final = 10


def train(options: TrainOptions, parts: Any) -> Run:
    """Train a model, or go on training it. parts: the chosen ones (nmt.cli.command.Parts).

    Raises Interrupted after saving, when a signal asked to stop.
    """
    world = World.of_environment()
    device = choose_device(options.device, world.local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    data = training_data(options)
    dev = development_set(options, data)
    folder = Path(options.output)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{quoted(folder)}: is a file; a run is a folder (name another --output)")
    if (folder / MANIFEST).exists():
        raise UserError(f"{quoted(folder)}: is a finished artefact, not a run (name another --output)")
    joined = world.joined(device.type, options.timeout)
    with joined, _held(folder, world), linear.using("torch"), Signals() as signals:
        run = set_up(options, parts, data, device, world)
        try:
            run.resume()
            settle(run)
            _announce(run, dev)
            if world.leads and not _finished(run):
                write_file(folder / SETTINGS, _settings_file(options, parts))
            translator = None
            if options.valid_bleu:
                translator = Translator(data.pipeline, run.model, parts.build("decoder"), options.valid_batch_tokens)
            _loop(run, dev, translator, signals)
            _conclude(run)
        finally:
            run.report.close()
        return run


@contextmanager
def _held(folder: Path, world: World) -> Iterator[None]:
    """The lock of a run folder, which the leader holds for all ranks."""
    if not world.leads:
        yield
        return
    with Lock(folder):
        yield


def _loop(run: Run, dev: EvaluationSet | None, translator: Translator | None, signals: Signals) -> None:
    options, progress = run.options, run.progress
    periods = (options.save_every, options.valid_every, options.log_every)
    save, valid, log = (Alarm(Period.parse(every)) for every in periods)
    if progress.validation_due:  # a signal cut it short
        progress.save_due |= _validate(run, dev, translator, signals)
        progress.save_due |= _finished(run)
        run.save(last=True)
        if asked := run.agree(signals.received):
            raise Interrupted(asked)
    if _finished(run):
        return
    run.model.train()
    done_before, window, began = _share(run) or 0.0, Window(), time.monotonic()
    with closing(ahead(run.loader.updates(progress.position))) as updates:
        for data in updates:
            held = run.progress.found.holds
            stats, rate = make_update(run, data)
            asked = run.agree(signals.received)
            if run.progress.found.holds < held:
                run.report.line(_ran_out(run, held))
            _note(run, stats, data, rate, window, time.monotonic() - began)
            now = (progress.update, progress.epoch if data.ends_epoch else None, run.seconds)
            finished = _finished(run)
            if log.rings(*now) or progress.update == 1 or finished or asked:
                left = {"validation": _left(run, valid, window), "checkpoint": _left(run, save, window)}
                run.report.training(_shown(run, rate, stats, done_before, left), window)
                window = Window()
            progress.validation_due = dev is not None and (valid.rings(*now) or finished)
            progress.save_due = save.rings(*now) or finished
            if progress.validation_due:
                progress.save_due |= _validate(run, dev, translator, signals)
                finished, asked = finished or _out_of_patience(run), run.agree(signals.received)
            progress.save_due |= finished
            if progress.save_due or asked:
                run.save(last=finished or asked is not None)
            if asked:  # and not a signal that came since, of which other ranks know nothing
                told = f"stopped by signal {asked} after update {progress.update}, which is saved"
                run.report.line(f"{told}; the same command, or --config {run.folder / SETTINGS}, goes on")
                run.agree(asked)  # all leave together, when it is saved
                raise Interrupted(asked)
            if finished:
                break
            began = time.monotonic()


def make_update(run: Run, data: UpdateBatches) -> tuple[Stats, float]:
    """Make the next update; returns its statistics and learning rate."""
    options, progress = run.options, run.progress
    rate = run.schedule(progress.update + 1)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    seed = seed_of(options.seed, progress.update + 1, run.world.rank)
    stats = run.updater(data, seed, progress.found.holds, progress.scale)
    progress.found.holds = stats.holds
    progress.advance(data)
    return stats, rate


def _ran_out(run: Run, held: int) -> str:
    return (
        f"update {run.progress.update}: out of memory with micro-batches of up to {held:,} tokens; it was made with at most "
        f"{run.progress.found.holds:,} each, like those to come: the same gradient, but for dropout's draws"
    )


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


def set_up(options: TrainOptions, parts: Any, data: PreparedData, device: torch.device, world: World) -> Run:
    """The run with fresh weights: model, criterion, optimizer and schedule."""
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    keep_pages()
    allow_tf32(device, options.precision)
    pipeline = data.pipeline
    vocabularies = Vocabularies(pipeline.source.size, pipeline.target.size, pipeline.joint)
    torch.manual_seed(options.seed)
    model = parts.build("model", vocabularies).to(device)
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
        report=Report(folder, options.tensorboard) if world.leads and not options.dry_run else NoReport(),
        checkpoints=Checkpoints(folder),
        progress=Progress(scale=LossScale() if options.precision == "fp16" else None),
    )


def settle(run: Run) -> None:
    """Choose what is measured and not given: the path of the products, and the size of the micro-batches."""
    options, found = run.options, run.progress.found
    if run.device.type == "cpu" and options.precision in CAST_TO:
        _warn_of_slow(run, options.precision)
    if options.matmul == "onednn" and not linear.available():
        raise UserError("--matmul onednn: this torch was built without it (give auto or torch)")
    if options.matmul != "auto":
        found.matmul = options.matmul
    elif found.matmul is None or (found.matmul == "onednn" and not linear.available()):
        found.matmul = _faster_products(run)
    linear.use(found.matmul)
    if found.asked != options.max_tokens:
        found.asked = options.max_tokens
        if options.max_tokens != "auto":
            found.max_tokens = options.max_tokens
        else:
            found.max_tokens = find_max_tokens(run.updater.objective, run.loader, options.precision, run.world)
            run.report.line(f"micro-batches of at most {found.max_tokens:,} tokens, padding counted: found by trial")
        found.holds = found.max_tokens
    run.loader.max_tokens = found.max_tokens


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


def _must_stay(options: TrainOptions, parts: Any) -> Mapping[str, Any]:
    """The settings that must be the same when a run goes on, by key."""
    schedule = registry.find("schedule", parts.chosen["schedule"]).cls
    keys = (*MUST_STAY, *getattr(schedule, "depends_on", ()))
    settings: dict[str, Any] = {key: getattr(options, key) for key in keys}
    for kind in ("model", "criterion", "optimizer", "schedule"):
        settings |= {kind: parts.chosen[kind], **as_dict(parts.options(kind))}
    return settings


def _settings_file(options: TrainOptions, parts: Any) -> bytes:
    """All settings as TOML, so that `nmt train --config RUN/settings.toml` goes on."""
    settings = as_dict(options)
    for kind, name in parts.chosen.items():
        settings |= {kind: name, **as_dict(parts.options(kind))}
    return "".join(f"{key} = {to_toml(value)}\n" for key, value in settings.items()).encode()


def _note(run: Run, stats: Stats, data: UpdateBatches, rate: float, window: Window, seconds: float) -> None:
    """Record an update, and end the run when none can be applied any more."""
    progress = run.progress
    flops = flops_of(run.model, data)
    progress.flops += flops
    progress.skipped += not stats.applied
    progress.skipped_in_a_row = 0 if stats.applied else progress.skipped_in_a_row + 1
    run.report.record(
        {
            "update": progress.update,
            "epoch": progress.epoch,
            "loss": stats.loss / stats.tokens,
            "nll": stats.nll / stats.tokens,
            "target_tokens": stats.tokens,
            "eflop": progress.flops / 10**18,
            "lr": rate,
            "gradient_norm": stats.gradient_norm,
            "skipped": progress.skipped,
        }
    )
    if progress.skipped_in_a_row == SKIPS_THAT_END_A_RUN:
        raise DivergedError(
            f"update {progress.update}: loss or gradient not finite {SKIPS_THAT_END_A_RUN} times in a row; the checkpoints "
            "are kept (lower --lr, longer --warmup-updates, or --clip-norm 1)"
        )
    count(window, stats, flops, seconds)


def flops_of(model: Model, data: UpdateBatches) -> int:
    """What an update of this data costs, over all ranks."""
    return model.training_flops(torch.from_numpy(data.source_lengths), torch.from_numpy(data.target_lengths))


def count(window: Window, stats: Stats, flops: int, seconds: float) -> None:
    """Add an update to a window's sums."""
    window.updates += 1
    window.seconds += seconds
    window.real_tokens += stats.real
    window.cells += stats.cells
    window.flops += flops
    window.skipped += not stats.applied
    if stats.applied:
        window.target_tokens += stats.tokens
        window.loss += stats.loss
        window.nll += stats.nll


def _validate(run: Run, dev: EvaluationSet | None, translator: Translator | None, signals: Signals) -> bool:
    """Validate, tell it, and say whether the model is the best so far.

    A signal cuts it short: then it stays due, and is done when the run goes on.
    """
    options, progress = run.options, run.progress
    if dev is None:
        return False
    settings = (options.bleu_tokenize, progress.found.holds, options.precision)
    try:
        model = run.whole_model()
        if translator is not None:
            translator.scorer = model
        scores = validate(model, run.criterion, dev, translator, *settings, run.world, signals.check)
    except Interrupted:
        return False
    progress.validation_due = False
    run.schedule.see(scores.loss)
    better = progress.see(-scores.loss if options.best_by == "loss" or scores.bleu is None else scores.bleu)
    told = {"loss": scores.loss, "ppl": scores.perplexity, "bleu": scores.bleu}
    run.report.record({"update": progress.update, **{f"valid_{name}": value for name, value in told.items()}})
    best = "none" if progress.best is None else f"{abs(progress.best):.4f}"
    state = "new best" if better else f"stalled {progress.stalled} times (best {options.best_by}: {best})"
    text = f"[valid] Ep. {progress.epoch} : Up. {progress.update} : {_told(scores)} : {state}"
    numbers = {name: value for name, value in told.items() if value is not None}
    run.report.validation(progress.update, text, numbers, scores.examples)
    return better


def _told(scores: Scores) -> str:
    text = f"loss {scores.loss:.4f} nats/token : ppl {scores.perplexity:.3f}"
    return text if scores.bleu is None else f"{text} : BLEU {scores.bleu:.2f} ({scores.signature})"


def _out_of_patience(run: Run) -> bool:
    return run.options.patience is not None and run.progress.stalled >= run.options.patience


def _finished(run: Run) -> bool:
    """Whether updates, epochs, minutes or patience are used up."""
    options, progress = run.options, run.progress
    return (
        (options.max_updates is not None and progress.update >= options.max_updates)
        or (options.max_epochs is not None and progress.position.epoch > options.max_epochs)
        or (options.max_minutes is not None and run.seconds >= 60 * options.max_minutes)
        or _out_of_patience(run)
    )


def _epochs(run: Run) -> float:
    """Epochs read so far."""
    return run.progress.position.epoch - 1 + run.progress.position.pairs / len(run.data.train)


def _share(run: Run) -> float | None:
    """How much of the run is done, 0 to 1; None when it has no end set."""
    options = run.options
    shares = [run.progress.update / options.max_updates] if options.max_updates else []
    shares += [_epochs(run) / options.max_epochs] if options.max_epochs else []
    shares += [run.seconds / 60 / options.max_minutes] if options.max_minutes else []
    return min(max(shares), 1.0) if shares else None


def _left(run: Run, alarm: Alarm, window: Window) -> float:
    """About how many seconds until an alarm rings, at the speed of the last updates."""
    per_update = window.seconds / window.updates
    per_epoch = per_update * run.progress.update / max(_epochs(run), 1e-9)
    return alarm.seconds_left(run.progress.update, _epochs(run), run.seconds, per_update, per_epoch)


def _shown(run: Run, rate: float, stats: Stats, done_before: float, left: Mapping[str, float]) -> Shown:
    """Where the run stands. done_before: the share of it that earlier processes did."""
    share = _share(run)
    to_do = None if share is None else (share - done_before) / max(1 - done_before, 1e-9)
    progress = run.progress
    return Shown(progress.update, progress.epoch, rate, stats.gradient_norm, progress.flops, to_do, left)


def _announce(run: Run, dev: EvaluationSet | None) -> None:
    report, progress = run.report, run.progress
    name = run.facts.model
    report.line(
        f"{name}: {run.model.num_parameters():,} parameters on {run.device} ({run.options.precision}); "
        f"{len(run.data.train):,} pairs, {run.loader.updates_per_epoch():,} updates an epoch"
    )
    if run.model.cost_is_measured:
        report.line(f"the cost of a pair is measured at a few lengths and interpolated: {name} has no flops of its own")
    if dev is None:
        report.line(
            "no development set: nothing tells when to stop, and no checkpoint is the best (nmt prepare --valid)"
        )
    if progress.update:
        report.line(f"going on after update {progress.update} (epoch {progress.position.epoch})")
    if _finished(run) and not progress.validation_due:
        report.line(
            f"nothing to do: the run ended at update {progress.update} (raise --max-updates, --max-epochs or --patience)"
        )


def _conclude(run: Run) -> None:
    """Say which checkpoint is the best, and how to use it."""
    if run.options.compile:
        run.report.line(f"torch.compile made {graphs_compiled()} graphs")
    best = run.checkpoints.best()
    if best is not None:
        score = run.checkpoints.score(best)
        told = "" if score is None else f" ({run.options.best_by} {abs(score):.4f})"
        run.report.line(f"best checkpoint: {best}{told}; nmt translate --model {run.folder} uses it")
