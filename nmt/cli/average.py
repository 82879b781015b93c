"""`nmt average`: the mean of checkpoints as a model folder (Vaswani et al., 2017, section 6.1)."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from nmt.artefact import Artefact, check_output
from nmt.checkpoint import Checkpoints, ModelFacts, average_weights, load_model, save_model, update_of
from nmt.cli.command import Command, Parts
from nmt.data.shards import PreparedData
from nmt.device import choose_device
from nmt.errors import ArtefactError, UserError, quoted
from nmt.log import log
from nmt.options import REQUIRED, opt
from nmt.signals import Signals
from nmt.text.pipeline import Pipeline
from nmt.train.validation import validate


@dataclass(frozen=True, kw_only=True)
class AverageOptions:
    output: str = opt(REQUIRED, "model folder to write", aliases=("o",))
    run: str | None = opt(None, "run folder whose checkpoints are averaged")
    last: int | None = opt(None, "the newest N checkpoints")
    best: int | None = opt(None, "the best N checkpoints by their validation score")
    every_minutes: float = opt(0.0, "with --last: take only checkpoints this many minutes of training apart")
    checkpoint: tuple[str, ...] = opt((), "named checkpoint or model folders, instead of --run")
    score: str | None = opt(
        None, "prepared data: show the loss on its development set of each checkpoint and of the mean"
    )
    max_tokens: int = opt(4096, "tokens that a device holds at once while scoring")
    device: str = opt("auto", "device for scoring: auto, cpu, cuda or cuda:N")
    overwrite: bool = opt(False, "replace a model that is there")
    json: bool = opt(False, "print what was averaged, and the scores, as JSON")

    def __post_init__(self) -> None:
        if (self.run is None) == (not self.checkpoint):
            raise ValueError("give either --run or --checkpoint")
        if self.run is not None and (self.last is None) == (self.best is None):
            raise ValueError("give either --last N or --best N")
        if min(self.last or 1, self.best or 1) < 1:
            raise ValueError("--last and --best take a number of at least 1")


def run(options: AverageOptions, parts: Parts) -> None:
    """Average, write the model, and show the scores when they are asked for."""
    output = Path(options.output)
    check_output(output, options.overwrite)
    folders = chosen(options)
    weights = average_weights(folders)
    first = Artefact(folders[0], "model", "checkpoint")
    pipeline = Pipeline.load(first)
    for folder in folders[1:]:
        other = Artefact(folder, "model", "checkpoint")
        if ModelFacts.read(other) != ModelFacts.read(first) or Pipeline.load(other).hash != pipeline.hash:
            raise ArtefactError(
                f"{quoted(folder)}: is another model than {quoted(folders[0])}; they cannot be averaged"
            )
    names = [folder.name for folder in folders]
    save_model(output, weights, ModelFacts.read(first), pipeline, {"averaged": names})
    log.info(f"{output}: the mean of {len(folders)} checkpoints ({', '.join(names)})")
    with Signals() as signals:
        scores = _scores(options, parts, [*folders, output], signals) if options.score else {}
    if options.json:
        sys.stdout.write(json.dumps({"output": str(output), "averaged": names, "scores": scores}, indent=1) + "\n")
    else:
        sys.stdout.writelines(
            f"{name}\tloss {row['loss']:.4f} nats/token\tppl {row['ppl']:.4f}\n" for name, row in scores.items()
        )


def chosen(options: AverageOptions) -> list[Path]:
    """The folders to average, oldest first."""
    if options.run is None:
        return [Path(folder) for folder in options.checkpoint]
    checkpoints = Checkpoints(Path(options.run))
    ranked = checkpoints.ranked() if options.best is not None else list(reversed(checkpoints.all()))
    if options.every_minutes:
        ranked = _apart(ranked, options.every_minutes)
    wanted = options.best or options.last or 0
    if len(ranked) < wanted:
        kind = "scored checkpoints" if options.best else "checkpoints"
        apart = f" {options.every_minutes:g} minutes apart" if options.every_minutes else ""
        raise UserError(
            f"{quoted(options.run)}: has {len(ranked)} {kind}{apart}, {wanted} are wanted (see --keep-last)"
        )
    return sorted(ranked[:wanted], key=update_of)


def _apart(newest_first: list[Path], minutes: float) -> list[Path]:
    """Those that are at least so many minutes of training before the one taken last."""
    taken: list[tuple[float, Path]] = []
    for folder in newest_first:
        at = float(Artefact(folder, "checkpoint").manifest.get("minutes", 0.0))
        if not taken or taken[-1][0] - at >= minutes:
            taken.append((at, folder))
    return [folder for _, folder in taken]


def _scores(
    options: AverageOptions, parts: Parts, folders: list[Path], signals: Signals
) -> dict[str, dict[str, float]]:
    """Loss and perplexity of each folder's model on the development set."""
    data = PreparedData(Path(options.score or ""))
    dev = next(iter(data.valid.values()), None)
    if dev is None:
        raise UserError(f"{quoted(options.score)}: has no development set (nmt prepare --valid)")
    criterion, device = parts.build("criterion"), choose_device(options.device)
    rows = {}
    for folder in folders:
        loaded = load_model(folder, device)
        if loaded.pipeline.hash != data.pipeline.hash:
            raise ArtefactError(f"{quoted(options.score)}: was prepared with another vocabulary than {quoted(folder)}")
        with torch.inference_mode():
            scores = validate(loaded.model, criterion, dev, None, "13a", options.max_tokens, "fp32", signals.check)
        rows[folder.name] = {"loss": scores.loss, "ppl": scores.perplexity}
    return rows


COMMAND = Command("average", "Average checkpoints into a model folder.", AverageOptions, run, kinds=("criterion",))
