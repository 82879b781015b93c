"""`nmt describe`: one part, preset or model folder, with its options."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Any

from nmt import registry
from nmt.cli.command import Command
from nmt.errors import one_line
from nmt.options import REQUIRED, opt, options_of, to_toml


@dataclass(frozen=True, kw_only=True)
class DescribeOptions:
    kind: str = opt(REQUIRED, "model, criterion, optimizer, schedule, decoder or preset; or folder")
    name: str = opt(REQUIRED, "its name (nmt list KIND); of a model folder, or a run's best checkpoint, its path")
    json: bool = opt(False, "print JSON")


def run(options: DescribeOptions) -> None:
    """Print what a part is, where it is defined, and each of its options with type, default and help."""
    if options.kind == "preset":
        preset = registry.find_preset(options.name)
        rows = [{"name": key, "default": value, "type": "", "help": ""} for key, value in preset.values.items()]
        told, place = preset.help, preset.place
    elif options.kind == "folder":
        told, entry, values = _model_of(Path(options.name))
        rows, place = _rows(entry, values), entry.place
    else:
        entry = registry.find(options.kind, options.name)
        rows, told, place = _rows(entry, {}), cleandoc(entry.cls.__doc__ or ""), entry.place
    if options.json:
        found = {"kind": options.kind, "name": options.name, "place": place, "help": told, "options": rows}
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return
    sys.stdout.write(f"{options.kind} {one_line(options.name)} ({place})\n{told}\n\n")
    for row in rows:
        default = to_toml(row["default"])  # as a settings file may say it
        sys.stdout.write(f"{row['name']} = {default}{'  # ' + str(row['help']) if row['help'] else ''}\n")


def _rows(entry: registry.Entry, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The options of a part. values: those that it was given; another has its default"""
    rows = []
    for o in options_of(entry.options):
        value = values.get(o.name, None if o.default is REQUIRED else o.default)
        rows.append({"name": o.name, "default": value, "type": o.type_name, "help": o.help})
    return rows


def _model_of(folder: Path) -> tuple[str, registry.Entry, Mapping[str, Any]]:
    """What a model folder holds in a line, the part that its network is, and the options that it was built with."""
    from nmt.artefact import Artefact
    from nmt.checkpoint import ModelFacts
    from nmt.runs import find_model
    from nmt.text.pipeline import Pipeline

    artefact = Artefact(find_model(folder), "model", "checkpoint")
    facts, pipeline = ModelFacts.read(artefact), Pipeline.load(artefact)
    languages = f"{pipeline.source_lang} to {pipeline.target_lang}"
    entries = f"{pipeline.source.size:,} and {pipeline.target.size:,} {'shared ' if pipeline.joint else ''}entries"
    told = f"{facts.model}, {languages}, weights in {facts.weights}, vocabularies of {entries}"
    return one_line(told), registry.find("model", facts.model), facts.options


COMMAND = Command(
    "describe",
    "One part, preset or model folder: what it is and its options.",
    DescribeOptions,
    run,
    positional=("kind", "name"),
)
