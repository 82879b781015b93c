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

MIN_SHARE_APART: Final = 0.95  # of --every-minutes: periods are not kept to the second
MIN_SHARE_OF_RUN: Final = 0.5  # of the newest checkpoint's updates: models from before are often far worse
MAX_TRIES: Final = 5  # each after a checkpoint that the run deleted


def average(options: AverageOptions, parts: Any) -> tuple[list[str], dict[str, dict[str, float]]]:
    """Average, score and write the model, in this order, so that a failure leaves nothing.

    parts: the chosen ones (nmt.cli.command.Parts)
    returns: the averaged folders; with --score loss and perplexity of each and of the mean, by path
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
            log.info(f"{quoted(options.run)}: the run has deleted a checkpoint meanwhile; choosing again")
    raise AssertionError("the last try returns or raises")


def _average_folders(
    options: AverageOptions, parts: Any, folders: Sequence[Path]
) -> tuple[list[str], dict[str, dict[str, float]]]:
    """`average` of these checkpoints."""
    output, device = Path(options.output), choose_device(options.device)
    facts, pipeline = _common_model(folders, output)
    dev = _development_set(options.score, pipeline, options.max_tokens) if options.score else None
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
    log.info(f"{output}: the mean of {', '.join(names)}")
    if scores:
        losses = {name: round(row["loss"], 4) for name, row in scores.items() if math.isfinite(row["loss"])}
        best = min([mean, *names], key=lambda name: losses.get(name, math.inf))
        if best != mean:  # as at the beginning of a training
            worse = f"worse than {quoted(best)} alone, loss {scores[mean]['loss']:.4f} against {losses[best]:.4f}"
            mend = "use that one, train longer, or average fewer that are closer together"
            log.warn(f"{quoted(output)}: the mean is {worse} ({mend})")
    return names, scores


def chosen(options: AverageOptions) -> list[Path]:
    """The folders to average: a run's checkpoints oldest first, or named folders in their order.

    A run with fewer checkpoints than asked for gives those that it has, with a warning. Raises UserError if it has none.
    """
    if options.run is None:
        return [Path(folder) for folder in options.checkpoint]
    checkpoints = Checkpoints(Path(options.run))
    if not checkpoints.folder.exists():
        kind = "is not the folder of a run" if Path(options.run).exists() else "no such folder; must be that of a run"
        raise ArtefactError(f"{quoted(options.run)}: {kind} (nmt train); --checkpoint names others")
    kept = checkpoints.due() or checkpoints.all()[-1:]  # of a run that was stopped before the first one was due
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
        log.warn(f"{fewer}, fewer than {asked}; averaged all of them ({why})")
    folders = sorted(ranked[:count], key=update_of)
    if update_of(folders[0]) < MIN_SHARE_OF_RUN * update_of(folders[-1]):
        early = f"{folders[0].name} is from early in this run, which is at {folders[-1].name}"
        log.warn(
            f"{quoted(options.run)}: {early}; the mean may be worse than the best checkpoint alone (average fewer)"
        )
    return folders


def _why_fewer(run: Path, kept: Sequence[Path], by_score: bool) -> str:
    """Why a run has no more checkpoints: others were deleted, or the run is too short. kept: oldest first"""
    settings = read_toml(run / "settings.toml") if (run / "settings.toml").is_file() else {}
    keep_last = settings.get("keep_last")
    if isinstance(keep_last, int) and 0 < keep_last <= len(kept):
        best = f" and --keep-best {settings.get('keep_best')}" if by_score else ""
        return quoted(f"it keeps no more: nmt train --keep-last {keep_last}{best}")
    if not kept:
        return "nmt train --save-every sets when one is saved"
    periods = [f"{flag_of(name)} {settings[name]}" for name in ("save_every", "valid_every") if name in settings]
    return quoted(f"it is at update {update_of(kept[-1])}: nmt train {' '.join(periods[: 1 + by_score])}".rstrip())


def _apart(newest_first: list[Path], minutes: float) -> list[Path]:
    """The newest, and each checkpoint about `minutes` of training or more before the previous one taken."""
    taken: list[tuple[float, Path]] = []
    for folder in newest_first:
        at = Artefact(folder, "checkpoint").manifest.get("minutes")
        if not isinstance(at, int | float) or not math.isfinite(at):
            raise ArtefactError(f"{quoted(folder)}: its manifest has minutes: {quoted(at)}, not a number")
        if not taken or taken[-1][0] - at >= MIN_SHARE_APART * minutes:
            taken.append((at, folder))
    return [folder for _, folder in taken]


def _common_model(folders: Sequence[Path], output: Path) -> tuple[ModelFacts, Pipeline]:
    """The model facts and the pipeline that all folders share. Raises an error if `output` is one of them."""
    first = Artefact(folders[0], "model", "checkpoint")
    facts, pipeline = ModelFacts.read(first), Pipeline.load(first)
    for folder in folders:
        if folder.resolve() == output.resolve():
            raise UserError(f"{quoted(output)}: is one of the folders to average (name another --output)")
        other = Artefact(folder, "model", "checkpoint")
        other_facts = ModelFacts.read(other)
        if other_facts.weights != FLOAT32:
            raise UserError(
                f"{quoted(folder)}: has {other_facts.weights} weights, which cannot be averaged (name the model that it was "
                "exported from)"
            )
        if other_facts != facts or Pipeline.load(other).hash != pipeline.hash:
            raise ArtefactError(
                f"{quoted(folder)}: is another model than {quoted(folders[0])}; they cannot be averaged"
            )
    return facts, pipeline


def _development_set(folder: str, pipeline: Pipeline, max_tokens: int) -> EvaluationSet:
    """The first development set of prepared data. Raises an error if its vocabulary is not the model's."""
    data = PreparedData(Path(folder))
    if data.pipeline.hash != pipeline.hash:
        raise ArtefactError(
            f"{quoted(folder)}: has another vocabulary than the checkpoints (nmt prepare --vocabulary CHECKPOINT)"
        )
    dev = next(iter(data.valid.values()), None)
    if dev is None or next(dev.batches(max_tokens), None) is None:
        raise UserError(
            f"{quoted(folder)}: has no development set to score (nmt prepare --valid PREFIX --vocabulary CHECKPOINT)"
        )
    dev.check()
    return dev
