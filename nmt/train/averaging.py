"""Average checkpoints into a model (Vaswani et al., 2017, section 6.1)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from nmt import signals
from nmt.artefact import MANIFEST, Artefact, check_output
from nmt.checkpoint import average_weights, load_model, put_weights, save_model, weights_of
from nmt.criteria.base import CriterionContext
from nmt.data.shards import EvaluationSet, PreparedData
from nmt.device import choose_device, use_threads
from nmt.dist import World
from nmt.errors import ArtefactError, UserError, one_line, quoted
from nmt.log import log
from nmt.models.saved import FLOAT32, ModelFacts
from nmt.options import flag_of, read_toml
from nmt.runs import Checkpoints, update_of
from nmt.text.pipeline import Pipeline
from nmt.train.options import AverageOptions
from nmt.train.validation import Validation, validate

MIN_SHARE_APART: Final = 0.95  # this fraction of --every-minutes is enough, as saves are never exactly on time
MIN_SHARE_OF_RUN: Final = 0.5  # minimum updates relative to the newest checkpoint; earlier ones are often far worse
MAX_TRIES: Final = 5  # attempts to average, because training in progress may delete a chosen checkpoint


def average(options: AverageOptions, parts: Any) -> tuple[list[str], dict[str, dict[str, float]]]:
    """Average, score and write the model, in this order, so that a failure leaves no files behind.

    parts: the chosen components (nmt.cli.command.Parts)
    returns: the averaged folders; with --score, also the loss and perplexity of each folder and of the mean, by path
    """
    use_threads(options.threads)
    check_output(Path(options.output), "model", options.overwrite)
    for tries_left in reversed(range(MAX_TRIES)):
        present = [] if options.run is None else Checkpoints(Path(options.run)).all()
        try:
            return _average_folders(options, parts, chosen(options))
        except (ArtefactError, FileNotFoundError):
            if not tries_left or all((folder / MANIFEST).is_file() for folder in present):
                raise
            log.info(f"{quoted(options.run)}: the run has just deleted one of the checkpoints; choosing again")
    raise AssertionError("unreachable: the last attempt either returns or raises")


def _average_folders(
    options: AverageOptions, parts: Any, folders: Sequence[Path]
) -> tuple[list[str], dict[str, dict[str, float]]]:
    """Do the work of `average` for these checkpoints."""
    output, device = Path(options.output), choose_device(options.device)
    facts, pipeline = _common_model(folders, output)
    dev = _validation_set(options.score, pipeline) if options.score else None
    names = [one_line(str(folder)) for folder in folders]
    scores: dict[str, dict[str, float]] = {}
    with signals.Signals():
        weights = average_weights(folders)
        signals.check()
        mean = one_line(options.output)
        if dev is not None:
            models = [*zip(names, folders, strict=True), (mean, folders[0])]
            with log.progress("scoring", len(models), "models") as bar:
                for name, folder in models:
                    loaded = load_model(folder, device)
                    if name == mean:
                        put_weights(weights_of(loaded.model), weights, options.output)
                    criterion = parts.build("criterion", CriterionContext(loaded.pipeline, loaded.model))
                    scored = loaded.model, criterion, Validation(dev), options.max_tokens
                    with torch.inference_mode():
                        result = validate(*scored, "fp32", World())
                    scores[name] = {"loss": result.losses["loss"], "ppl": result.perplexity}
                    bar.advance()
        save_model(output, weights, facts, pipeline, {"averaged": names})
    log.info(f"{output}: average of {', '.join(names)}")
    if scores:
        losses = {name: round(row["loss"], 4) for name, row in scores.items() if math.isfinite(row["loss"])}
        best = min([mean, *names], key=lambda name: losses.get(name, math.inf))
        if best != mean:  # common early in training
            worse = f"is worse than {quoted(best)} alone: loss {scores[mean]['loss']:.4f} against {losses[best]:.4f}"
            advice = "use that checkpoint, train longer, or average fewer checkpoints that are closer together"
            log.warn(f"{quoted(output)}: the mean {worse} ({advice})")
    return names, scores


def chosen(options: AverageOptions) -> list[Path]:
    """Choose the folders to average: a run's checkpoints, oldest first, or the named folders in their order.

    If a run has fewer checkpoints than requested, all of them are chosen, with a warning. Raises UserError if it has none.
    """
    if options.run is None:
        return [Path(folder) for folder in options.checkpoint]
    checkpoints = Checkpoints(Path(options.run))
    if not checkpoints.folder.exists():
        kind = "not a run folder" if Path(options.run).exists() else "no such run folder"
        raise ArtefactError(
            f"{quoted(options.run)}: {kind} (give the --output folder of nmt train, or use --checkpoint for other folders)"
        )
    kept = checkpoints.due() or checkpoints.all()[-1:]  # the newest if the run stopped before its first regular save
    ranked = checkpoints.ranked() if options.best is not None else kept[::-1]
    if options.every_minutes:
        ranked = _apart(ranked, options.every_minutes)
    count = options.best or options.last or 0
    if len(ranked) < count:
        kind = f"{'scored ' if options.best else ''}checkpoint{'' if len(ranked) == 1 else 's'}"
        apart = f" {options.every_minutes:g} minutes apart" if options.every_minutes else ""
        fewer = f"{quoted(options.run)}: the run has {len(ranked) or 'no'} {kind}{apart}"
        why = _why_fewer(Path(options.run), kept, options.best is not None)
        if not ranked:
            raise UserError(f"{fewer} ({why})")
        asked = f"--{'best' if options.best else 'last'} {count}"
        log.warn(f"{fewer}, fewer than {asked}; averaging all of them ({why})")
    folders = sorted(ranked[:count], key=update_of)
    if update_of(folders[0]) < MIN_SHARE_OF_RUN * update_of(folders[-1]):
        early = f"{folders[0].name} is much older than {folders[-1].name}"
        log.warn(
            f"{quoted(options.run)}: {early}; the mean may be worse than the best checkpoint alone "
            "(average fewer checkpoints)"
        )
    return folders


def _why_fewer(run: Path, kept: Sequence[Path], by_score: bool) -> str:
    """Explain why a run has too few checkpoints: others were deleted, or the run is too short. kept: oldest first"""
    settings = read_toml(run / "settings.toml") if (run / "settings.toml").is_file() else {}
    keep_last = settings.get("keep_last")
    if isinstance(keep_last, int) and 0 < keep_last <= len(kept):
        best = f" and --keep-best {settings.get('keep_best')}" if by_score else ""
        return quoted(f"it was trained with --keep-last {keep_last}{best}")
    if not kept:
        return "nmt train --save-every sets when checkpoints are saved"
    periods = [f"{flag_of(name)} {settings[name]}" for name in ("save_every", "valid_every") if name in settings]
    settings_text = f", with {' '.join(periods[: 1 + by_score])}" if periods else ""
    return quoted(f"it has made {update_of(kept[-1])} updates{settings_text}")


def _apart(newest_first: list[Path], minutes: float) -> list[Path]:
    """Choose the newest checkpoint, then repeatedly the newest one that is older by about `minutes` of training or more."""
    taken: list[tuple[float, Path]] = []
    for folder in newest_first:
        at = Artefact(folder, "checkpoint").manifest.get("minutes")
        if not isinstance(at, int | float) or not math.isfinite(at):
            raise ArtefactError(f"{quoted(folder)}: damaged manifest: 'minutes' is {quoted(at)}, not a number")
        if not taken or taken[-1][0] - at >= MIN_SHARE_APART * minutes:
            taken.append((at, folder))
    return [folder for _, folder in taken]


def _common_model(folders: Sequence[Path], output: Path) -> tuple[ModelFacts, Pipeline]:
    """The model facts and the pipeline that all folders share. Raises an error if `output` is one of the folders."""
    first = Artefact(folders[0], "model", "checkpoint")
    facts, pipeline = ModelFacts.read(first), Pipeline.load(first)
    for folder in folders:
        if folder.resolve() == output.resolve():
            raise UserError(f"--output {quoted(output)} is one of the folders to average (choose another --output)")
        other = Artefact(folder, "model", "checkpoint")
        other_facts = ModelFacts.read(other)
        if other_facts.weights != FLOAT32:
            raise UserError(
                f"{quoted(folder)}: weights in the format {other_facts.weights} cannot be averaged (use the model "
                "from which it was exported)"
            )
        if other_facts != facts or Pipeline.load(other).hash != pipeline.hash:
            raise ArtefactError(
                f"{quoted(folder)} and {quoted(folders[0])} differ in model or vocabulary and cannot be averaged"
            )
    return facts, pipeline


def _validation_set(folder: str, pipeline: Pipeline) -> EvaluationSet:
    """The first validation set of a data folder. Raises an error if its vocabulary is not the model's."""
    data = PreparedData(Path(folder))
    if data.pipeline.hash != pipeline.hash:
        raise ArtefactError(
            f"{quoted(folder)}: vocabulary differs from that of the checkpoints (use nmt prepare --vocabulary CHECKPOINT)"
        )
    dev = next(iter(data.valid.values()), None)
    if dev is None:
        raise UserError(
            f"{quoted(folder)}: no validation set to score on (use nmt prepare --valid PREFIX --vocabulary CHECKPOINT)"
        )
    dev.check()
    return dev
