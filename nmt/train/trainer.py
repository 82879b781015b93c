"""The training loop."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import torch

from nmt.artefact import Lock, write_file
from nmt.data.loader import UpdateBatches, ahead
from nmt.data.shards import EvaluationSet
from nmt.dist import World
from nmt.errors import DivergedError, Interrupted
from nmt.models.base import Model
from nmt.options import as_dict, to_toml
from nmt.report.training import SHOWN_AS, Window
from nmt.report.training import Progress as Shown
from nmt.signals import Signals
from nmt.train.layer_wrapping import graphs_compiled
from nmt.train.period import Period, Timer
from nmt.train.run import Run, TrainOptions, update_seed
from nmt.train.setup import RunSetup, build_run, products_as, settle
from nmt.train.update import Stats
from nmt.train.validation import Scores, validate
from nmt.translate.translator import Translator

SETTINGS: Final = "settings.toml"
OF_ONE_CALL: Final = ("json", "dry_run")  # settings that do not belong to a run
SKIPS_THAT_END_A_RUN: Final = 10


def train(options: TrainOptions, parts: Any) -> Run:
    """Train a model, or go on training it. parts: the chosen ones (nmt.cli.command.Parts).

    Raises Interrupted after saving, when a signal asked to stop.
    """
    setup = RunSetup.of(options)
    world, dev, folder = setup.world, setup.dev, Path(options.output)
    joined, products = world.joined(setup.device.type, options.timeout), products_as(setup.device, options.precision)
    with joined, _held(folder, world), products, Signals() as signals:
        run = build_run(options, parts, setup)
        try:
            run.resume()
            settle(run)
            _announce(run, dev)
            if world.leads and not _finished(run):
                write_file(folder / SETTINGS, _settings_file(options, parts))
            translator = None
            if options.valid_bleu:
                pipeline, decoder = setup.data.pipeline, parts.build("decoder")
                translator = Translator(pipeline, run.model, decoder, options.valid_batch_tokens)
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
    save, valid, log = (Timer(Period.parse(every)) for every in periods)
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
            held = run.progress.limit.max_micro_batch_tokens
            stats, rate = make_update(run, data)
            asked = run.agree(signals.received)
            if run.progress.limit.max_micro_batch_tokens < held:
                run.report.line(_ran_out(run, held))
            _note(run, stats, data, rate, window, time.monotonic() - began)
            now = (progress.update, progress.epoch if data.ends_epoch else None, run.seconds)
            finished = _finished(run)
            if log.is_due(*now) or progress.update == 1 or finished or asked:
                left = {"validation": _left(run, valid, window), "checkpoint": _left(run, save, window)}
                run.report.training(_shown(run, rate, stats, done_before, left), window)
                window = Window()
            progress.validation_due = dev is not None and (valid.is_due(*now) or finished)
            progress.save_due = save.is_due(*now) or finished
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
    number = progress.update + 1
    rate = run.schedule(number)
    for group in run.optimizer.param_groups:
        group["lr"] = rate * group["lr_factor"]
    run.context.update = number
    run.model.begin_update(number)
    seed = update_seed(options.seed, number, run.world.rank)
    stats = run.updater(data, seed, progress.limit.max_micro_batch_tokens, progress.scale)
    progress.limit.max_micro_batch_tokens = stats.max_micro_batch_tokens
    progress.advance(data)
    return stats, rate


def _ran_out(run: Run, held: int) -> str:
    return (
        f"update {run.progress.update}: out of memory with micro-batches of up to {held:,} tokens; it was made with at most "
        f"{run.progress.limit.max_micro_batch_tokens:,} each, like those to come: the same gradient, but for dropout's draws"
    )


def _settings_file(options: TrainOptions, parts: Any) -> bytes:
    """All settings as TOML, so that `nmt train --config RUN/settings.toml` goes on."""
    settings = as_dict(options)
    for kind, name in parts.chosen.items():
        settings |= {kind: name, **as_dict(parts.options(kind))}
    kept = {key: value for key, value in settings.items() if key not in OF_ONE_CALL}
    return "".join(f"{key} = {to_toml(value)}\n" for key, value in kept.items()).encode()


def _note(run: Run, stats: Stats, data: UpdateBatches, rate: float, window: Window, seconds: float) -> None:
    """Record an update, and end the run when none can be applied any more."""
    progress = run.progress
    flops = flops_of(run.model, data)
    progress.flops += flops
    progress.skipped += not stats.applied
    if stats.applied:
        progress.skipped_in_a_row = 0
    elif progress.scale is None or progress.scale.factor == 1:  # else the scale was to blame, and is smaller now
        progress.skipped_in_a_row += 1
    run.report.record(
        {
            "update": progress.update,
            "epoch": progress.epoch,
            **stats.losses.means(),
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
        window.losses.add(stats.losses)


def _validate(run: Run, dev: EvaluationSet | None, translator: Translator | None, signals: Signals) -> bool:
    """Validate, tell it, and say whether the model is the best so far.

    A signal cuts it short: then it stays due, and is done when the run goes on.
    """
    options, progress = run.options, run.progress
    if dev is None:
        return False
    settings = (options.bleu_tokenize, progress.limit.max_micro_batch_tokens, options.precision)
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
    parts = {name: value for name, value in scores.losses.items() if name not in SHOWN_AS}
    told = {"loss": scores.loss, "ppl": scores.perplexity, "bleu": scores.bleu, **parts}
    run.report.record({"update": progress.update, **{f"valid_{name}": value for name, value in told.items()}})
    best = "none" if progress.best is None else f"{abs(progress.best):.4f}"
    state = "new best" if better else f"stalled {progress.stalled} times (best {options.best_by}: {best})"
    text = f"[valid] Ep. {progress.epoch} : Up. {progress.update} : {_told(scores)} : {state}"
    numbers = {name: value for name, value in told.items() if value is not None}
    run.report.validation(progress.update, text, numbers, scores.examples)
    return better


def _told(scores: Scores) -> str:
    text = f"loss {scores.loss:.4f} nats/token : ppl {scores.perplexity:.3f}"
    text += "".join(f" : {name} {mean:.4f}" for name, mean in scores.losses.items() if name not in SHOWN_AS)
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


def _left(run: Run, timer: Timer, window: Window) -> float:
    """About how many seconds until an alarm rings, at the speed of the last updates."""
    per_update = window.seconds / window.updates
    per_epoch = per_update * run.progress.update / max(_epochs(run), 1e-9)
    return timer.seconds_left(run.progress.update, _epochs(run), run.seconds, per_update, per_epoch)


def _shown(run: Run, rate: float, stats: Stats, done_before: float, left: Mapping[str, float]) -> Shown:
    """Where the run stands. done_before: the share of it that earlier processes did."""
    share = _share(run)
    to_do = None if share is None else (share - done_before) / max(1 - done_before, 1e-9)
    progress = run.progress
    return Shown(progress.update, progress.epoch, rate, stats.gradient_norm, progress.flops, to_do, left)


def _announce(run: Run, dev: EvaluationSet | None) -> None:
    report, progress = run.report, run.progress
    name, ranks = run.facts.model, run.world.size
    devices = f"{ranks} x {run.device.type}" if ranks > 1 else f"{run.device}"
    report.line(
        f"{name}: {run.model.num_parameters():,} parameters on {devices} ({run.options.precision}); "
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
