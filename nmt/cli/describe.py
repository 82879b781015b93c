"""`nmt describe`: one part, preset or model folder, with its options."""

import json
import sys
from collections.abc import Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Any

from nmt import registry
from nmt.cli.command import Command
from nmt.errors import one_line
from nmt.options import REQUIRED, opt, options_class, toml_line


@options_class
class DescribeOptions:
    kind: str = opt(REQUIRED, f"{', '.join(registry.FOLDERS)} or preset; or folder")
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
        help = f"  # {row['help']}" if row["help"] else ""
        sys.stdout.write(f"{toml_line(row['name'], row['default'])}{help}\n")


def _rows(entry: registry.Entry, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The options of a part and of the parts within it. values: those that it was given; another has its default"""
    rows = []
    for option in registry.options_within(
        entry.kind, entry.name, lambda option: values.get(option.key, option.default)
    ):
        value = values.get(option.key, None if option.default is REQUIRED else option.default)
        rows.append({"name": option.key, "default": value, "type": option.type_name, "help": option.help})
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
