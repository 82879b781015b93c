"""The training loop, and how a run is set up for it."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from nmt.artefact import Lock
from nmt.checkpoint import Checkpoints, ModelFacts
from nmt.data.loader import Loader
from nmt.data.shards import EvaluationSet, PreparedData
from nmt.decoders.base import Decoder
from nmt.device import autocast, choose_device, keep_pages
from nmt.errors import DivergedError, Interrupted, UserError, quoted, unknown
from nmt.infer.translator import Translator
from nmt.models.base import Vocabularies
from nmt.options import as_dict
from nmt.report import Progress as Shown
from nmt.report import Report, Window
from nmt.signals import Signals
from nmt.train.every import Alarm, Period
from nmt.train.run import MATHEMATICS, Progress, Run, TrainOptions
from nmt.train.update import Stats, update
from nmt.train.validation import Scores, validate

SKIPS_THAT_END_A_RUN: Final = 10


def train(options: TrainOptions, parts: Any) -> Run:
    """Train a model, or go on training it. parts: the chosen ones (nmt.cli.command.Parts).

    Raises Interrupted after saving, when a signal asked to stop.
    """
    data = training_data(options)
    with Lock(Path(options.output)), Signals() as signals:
        run = set_up(options, parts, data)
        try:
            run.resume()
            _announce(run)
            _loop(run, parts.build("decoder"), signals)
        finally:
            run.report.close()
        return run


def _loop(run: Run, decoder: Decoder, signals: Signals) -> None:
    options, progress = run.options, run.progress
    dev, translator = _dev(run), _translator(run, decoder)
    save, valid, log = (
        Alarm(Period.parse(every)) for every in (options.save_every, options.valid_every, options.log_every)
    )
    started, window = time.monotonic(), Window()
    if _validate(run, dev, translator, signals):  # one that a signal cut short
        run.save(last=False)
    if _finished(run, 0.0):
        return
    run.model.train()
    for data in run.loader.updates(progress.position):
        began = time.monotonic()
        rate = run.schedule(progress.update + 1)
        set_learning_rate(run.optimizer, rate)
        cast = autocast(run.device, options.precision)
        stats = update(run.model, run.criterion, run.optimizer, data.batches, cast, options.clip_norm)
        epoch, progress.position, progress.score = progress.position.epoch, data.after, None
        progress.update += 1
        _note(run, stats, rate, epoch, window, time.monotonic() - began)
        ended = epoch if data.ends_epoch else None
        finished = _finished(run, time.monotonic() - started)
        if log.rings(progress.update, ended) or finished or signals.received is not None:
            events = {"validation": valid, "checkpoint": save}
            run.report.training(
                _shown(run, epoch, rate, stats, started, events, window.seconds / window.updates), window
            )
            window = Window()
        progress.validation_due = dev is not None and (valid.rings(progress.update, ended) or finished)
        better = _validate(run, dev, translator, signals)
        finished = finished or _out_of_patience(run)
        last = finished or signals.received is not None
        if save.rings(progress.update, ended) or better or last:
            run.save(last)
        signals.check()
        if finished:
            break


def training_data(options: TrainOptions) -> PreparedData:
    """The prepared data; UserError when there is nothing in it to train on."""
    data = PreparedData(Path(options.data))
    if not len(data.train):
        raise UserError(f"{quoted(options.data)}: has no training pairs (nmt prepare --train)")
    return data


def set_up(options: TrainOptions, parts: Any, data: PreparedData) -> Run:
    """The run with fresh weights: model, criterion, optimizer and schedule."""
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    keep_pages()
    device = choose_device(options.device)
    pipeline = data.pipeline
    vocabularies = Vocabularies(pipeline.source.size, pipeline.target.size, pipeline.joint)
    torch.manual_seed(options.seed)
    model = parts.build("model", vocabularies).to(device)
    folder = Path(options.output)
    return Run(
        options=options,
        settings=_mathematics(options, parts),
        folder=folder,
        data=data,
        facts=ModelFacts.of(parts.chosen["model"], parts.options("model"), vocabularies),
        model=model,
        criterion=parts.build("criterion"),
        optimizer=parts.build("optimizer", model.parameters()),
        schedule=parts.build("schedule", model.width, options.max_updates),
        loader=Loader(data.train, options.batch_tokens, options.max_tokens, options.seed),
        report=Report(folder, options.tensorboard),
        checkpoints=Checkpoints(folder),
        progress=Progress(),
    )


def _mathematics(options: TrainOptions, parts: Any) -> Mapping[str, Any]:
    """The settings that must be the same when a run goes on."""
    kinds = ("model", "criterion", "optimizer", "schedule")
    settings: dict[str, Any] = {key: getattr(options, key) for key in MATHEMATICS}
    for kind in kinds:
        settings |= {kind: parts.chosen[kind], **as_dict(parts.options(kind))}
    return settings


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _note(run: Run, stats: Stats, rate: float, epoch: int, window: Window, seconds: float) -> None:
    """Record an update, and end the run when none can be applied any more."""
    progress = run.progress
    progress.skipped += not stats.applied
    progress.skipped_in_a_row = 0 if stats.applied else progress.skipped_in_a_row + 1
    run.report.record(
        {
            "update": progress.update,
            "epoch": epoch,
            "loss": stats.loss / stats.tokens,
            "nll": stats.nll / stats.tokens,
            "target_tokens": stats.tokens,
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
    window.updates += 1
    window.seconds += seconds
    window.target_tokens += stats.tokens
    window.real_tokens += stats.real
    window.cells += stats.cells
    if stats.applied:
        window.loss += stats.loss
        window.nll += stats.nll


def _validate(run: Run, dev: EvaluationSet | None, translator: Translator | None, signals: Signals) -> bool:
    """Validate if that is due, tell it, and say whether the model is the best so far.

    A signal cuts it short: then it stays due, and is done when the run goes on.
    """
    options, progress = run.options, run.progress
    if dev is None or not progress.validation_due:
        return False
    settings = (options.bleu_tokenize, options.max_tokens, options.precision)
    try:
        scores = validate(run.model, run.criterion, dev, translator, *settings, signals.check)
    except Interrupted:
        return False
    progress.validation_due = False
    run.schedule.see(scores.loss)
    score = -scores.loss if options.best_by == "loss" or scores.bleu is None else scores.bleu
    progress.score = score
    better = progress.best is None or score > progress.best
    progress.best = score if better or progress.best is None else progress.best
    progress.stalled = 0 if better else progress.stalled + 1
    record = {
        "update": progress.update,
        "valid_loss": scores.loss,
        "valid_ppl": scores.perplexity,
        "valid_bleu": scores.bleu,
    }
    run.report.record(record)
    state = (
        "new best" if better else f"stalled {progress.stalled} times (best {options.best_by}: {abs(progress.best):.4f})"
    )
    text = f"[valid] Up. {progress.update} : {_told(scores)} : {state}"
    told = {"loss": scores.loss, "ppl": scores.perplexity}
    if scores.bleu is not None:
        told["bleu"] = scores.bleu
    run.report.validation(progress.update, text, told, scores.examples)
    return better


def _told(scores: Scores) -> str:
    text = f"loss {scores.loss:.4f} nats/token : ppl {scores.perplexity:.3f}"
    return text if scores.bleu is None else f"{text} : BLEU {scores.bleu:.2f} ({scores.signature})"


def _out_of_patience(run: Run) -> bool:
    return run.options.patience is not None and run.progress.stalled >= run.options.patience


def _finished(run: Run, seconds: float) -> bool:
    """Whether updates, epochs, minutes or patience are used up."""
    options, progress = run.options, run.progress
    return (
        (options.max_updates is not None and progress.update >= options.max_updates)
        or (options.max_epochs is not None and progress.position.epoch > options.max_epochs)
        or (options.max_minutes is not None and seconds >= 60 * options.max_minutes)
        or _out_of_patience(run)
    )


def _shown(
    run: Run, epoch: int, rate: float, stats: Stats, started: float, events: Mapping[str, Alarm], per_update: float
) -> Shown:
    """Where the run stands. events: what comes next, by name; per_update: seconds of an update."""
    options, done = run.options, run.progress.update
    epochs = run.progress.position.epoch - 1 + run.progress.position.pairs / len(run.data.train)
    per_epoch = per_update * done / max(epochs, 1e-9)
    left = {name: alarm.seconds_left(done, epochs, per_update, per_epoch) for name, alarm in events.items()}
    shares = [done / options.max_updates] if options.max_updates else []
    if options.max_epochs:
        shares.append(epochs / options.max_epochs)
    if options.max_minutes:
        shares.append((time.monotonic() - started) / 60 / options.max_minutes)
    return Shown(done, epoch, rate, stats.gradient_norm, min(max(shares), 1.0) if shares else None, left)


def _dev(run: Run) -> EvaluationSet | None:
    """The development set that validation uses; None when the data has none."""
    sets, name = run.data.valid, run.options.valid_set
    if name is not None and name not in sets:
        raise unknown("development set", name, sets)
    return sets[name] if name is not None else next(iter(sets.values()), None)


def _translator(run: Run, decoder: Decoder) -> Translator | None:
    if not run.options.valid_bleu:
        return None
    return Translator(run.data.pipeline, run.model, decoder, run.options.valid_batch_tokens)


def _announce(run: Run) -> None:
    report, progress = run.report, run.progress
    name = run.facts.model
    report.line(
        f"{name}: {run.model.num_parameters():,} parameters on {run.device} ({run.options.precision}); "
        f"{len(run.data.train):,} pairs, {run.loader.updates_per_epoch():,} updates an epoch"
    )
    if progress.update:
        report.line(f"going on after update {progress.update} (epoch {progress.position.epoch})")
    if _finished(run, 0.0):
        report.line(
            f"nothing to do: update {progress.update} is where this run ends (raise --max-updates or --max-epochs)"
        )
