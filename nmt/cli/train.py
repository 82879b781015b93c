"""`nmt train`: train a model on prepared data, or resume a run."""

import contextlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nmt import registry
from nmt.artefact import CHECKED, Artefact
from nmt.cli.command import DEFAULTS, Command, Parts, print_json, print_lines
from nmt.cli.settings import Layer
from nmt.dist import World
from nmt.errors import ArtefactError, UserError, quoted
from nmt.log import log
from nmt.options import as_dict, flag_of, options_of, read_toml
from nmt.runs import SETTINGS, Checkpoints, find_model
from nmt.train.options import TrainOptions

FINE_TUNING: Final = "fine-tuning"  # shown as the origin of defaults that a start component declares
TRAIN_OPTIONS: Final = {option.name: option for option in options_of(TrainOptions)}


def run(options: TrainOptions, parts: Parts) -> int:
    """Train a model on a data folder, or resume an existing run, bit for bit."""
    from nmt.train.setup import open_data  # these import torch
    from nmt.train.trainer import train

    previews = registry.active("preview", options)
    if not previews:
        refuse_default_sizes(options, parts)
    world = World.from_environment()
    if options.devices > 1 and world.size == 1:
        from nmt.cli.launch import launch

        data, _ = open_data(options)  # checked here, so that errors in the data are printed only once
        checked = {CHECKED: data.artefact.digest}  # so that ranks do not hash the same files again
        after = "the same command resumes from the newest checkpoint"
        return launch(options.devices, options.device, options.threads, ["train", *parts.argv], after, checked)
    log.quiet |= not world.leads
    log_defaults(options, parts)
    if previews:
        preview: Any = previews[0].cls(options, parts)
        if world.leads:
            if options.json:
                print_json(preview.values())
            else:
                print_lines(preview.lines())
        return 0
    done = train(options, parts)
    if options.json and world.leads:
        best = done.checkpoints.best()
        score = None if best is None else done.checkpoints.score(best)
        sign = 1.0 if done.validation is None else done.validation.sign(done.progress.judged_by)
        state = {
            "update": done.progress.update,
            "epochs": done.progress.position.epoch - 1,
            "best": None if best is None else str(best),
            "best_by": done.progress.judged_by,
            "score": None if score is None else sign * score,
            "skipped": done.progress.skipped,
        }
        print_json(state)
    return 0


def log_defaults(options: TrainOptions, parts: Parts) -> None:
    """Log which defaults a new run takes from its start components."""
    values = as_dict(options) | parts.as_dict()
    names = [name for name, origin in parts.given.items() if origin == FINE_TUNING]
    keys = [name if name in values else name.partition(".")[2] for name in names]
    if keys and not Checkpoints(Path(options.output)).named():
        taken = " ".join(f"{flag_of(key)} {values[key]}" for key in keys)
        log.info(f"fine-tuning settings chosen for this data size: {taken} (flags and --config override them)")


def start_defaults(given: Mapping[str, Any]) -> Layer | None:
    """The defaults that start components declare, such as sizes for fine-tuning. A resumed run keeps its own.

    given: what files and flags set. The options class of a start may define a function `defaults(given, values)`, which gets
    the defaults of earlier starts by name, and returns them together with its own.
    """
    typed, values = {"preset": given.get("preset")}, dict[str, Any]()
    for name in TRAIN_OPTIONS.keys() & given.keys():
        with contextlib.suppress(UserError):  # invalid values are reported later, when all are converted
            typed[name] = TRAIN_OPTIONS[name].convert(given[name])
    for defaults in registry.declared("start", "defaults"):
        values = defaults(typed, values)
    folder = Path(typed.get("output") or "")
    if values and Checkpoints(folder).named() and (folder / SETTINGS).is_file():
        saved = read_toml(folder / SETTINGS)
        values = {key: saved[key] for key in values if key in saved}
    return Layer(FINE_TUNING, values) if values else None


def refuse_default_sizes(options: TrainOptions, parts: Parts) -> None:
    """Raise UserError for a new run on a CPU if neither a preset nor a size was chosen.

    The model would be as large as in its paper, and the training would take months. This applies to each model that declares
    which options are its sizes (`opt`).
    """
    name = parts.by_kind["model"].name
    within = registry.options_within("model", name, registry.choice_from(), "model")
    sizes = [option for option in within if option.is_size]
    if not sizes or "preset" in parts.given or any(option.path_key in parts.given for option in sizes):
        return
    if Checkpoints(Path(options.output)).named():
        return
    from nmt.device import choose_device  # imports torch

    if choose_device(options.device).type != "cpu":
        return
    fitting = {p.name: p.on_cpu for p in registry.presets().values() if p.on_cpu and p.values.get("model") == name}
    own = f"your own sizes ({', '.join(flag_of(option.name) for option in sizes[:3])}, ...)"
    choices = " or ".join([*(f"--preset {preset} ({use})" for preset, use in fitting.items()), own])
    error = f"--preset is missing: the default sizes of {name} are for GPUs, but the device is a CPU; use {choices}"
    if fitting and parts.argv:
        error += f": {shlex.join(['nmt', 'train', *parts.argv, '--preset', next(iter(fitting))])}"
    raise UserError(error)


def model_settings(given: Mapping[str, Any]) -> Layer | None:
    """The options of the --init-from model or, if the run is resumed, those in its newest readable checkpoint.

    Raises ArtefactError if none can be read.
    """
    values = {name: TRAIN_OPTIONS[name].convert(given[name]) for name in ("init_from", "output") if name in given}
    if not values.get("init_from"):
        return None
    from nmt.models.saved import ModelFacts

    def settings_in(folder: Path) -> Layer:
        facts = ModelFacts.read(Artefact(folder, "model", "checkpoint"))
        options = {f"model.{key}": value for key, value in facts.options.items()}
        return Layer(f"model {quoted(folder)}", {"model": facts.model, **options})

    for folder in reversed(Checkpoints(Path(values["output"])).all() if "output" in values else []):
        with contextlib.suppress(ArtefactError):
            return settings_in(folder)
    return settings_in(find_model(Path(values["init_from"])))


COMMAND = Command(
    "train",
    TrainOptions,
    run,
    kinds=tuple(DEFAULTS),
    positional=("data",),
    preload=("torch",),
    base=model_settings,
    defaults=start_defaults,
    group="train",
    examples=(
        "nmt train data --output run --preset transformer-tiny",
        "nmt train data --output run --preset transformer-base --devices 4",
        "nmt train talks --output tuned --init-from model",
    ),
    headings=(
        "Input and output",
        "Components",
        "Length of the run",
        "Batches",
        "Learning rate",
        "Hardware",
        "Validation",
        "Checkpoints",
        "Fine-tuning",
        "Regularization",
        "Data",
        "Speed and memory",
        "Logging",
    ),
)
