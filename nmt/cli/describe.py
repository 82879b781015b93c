"""`nmt describe`: a part, a preset or a model folder, with its options."""

import json
import sys
from collections.abc import Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Any

from nmt import registry
from nmt.cli.command import Command
from nmt.errors import UserError, one_line, quoted
from nmt.options import REQUIRED, opt, options_class, toml_line


@options_class
class DescribeOptions:
    kind: str = opt(REQUIRED, f"{', '.join(registry.FOLDERS)} or preset; or folder")
    name: str | None = opt(None, "name of the part (nmt list KIND), or path of the model folder or of the run")
    json: bool = opt(False, "print JSON")


def run(options: DescribeOptions) -> None:
    """Print the docstring of a part, its module, and each of its options with type, default and help."""
    if options.name is None:
        kinds = [kind for kind in registry.FOLDERS if options.kind in registry.names(kind)]
        kinds += ["preset"] if options.kind in registry.presets() else []
        kinds += ["folder"] if Path(options.kind).is_dir() else []
        likely = " or ".join(f"`nmt describe {kind} {options.kind}`" for kind in kinds)
        hint = f"did you mean {likely}?" if likely else "`nmt describe KIND NAME`; `nmt list` shows kinds and names"
        raise UserError(f"NAME is missing after '{quoted(options.kind)}' ({hint})")
    if options.kind == "preset":
        preset = registry.find_preset(options.name)
        rows = [{"name": key, "default": value, "type": "", "help": ""} for key, value in preset.values.items()]
        help, place = preset.help, preset.place
    elif options.kind == "folder":
        help, entry, values = _model_of(Path(options.name))
        rows, place = _rows(entry, values), entry.place
    else:
        entry = registry.find(options.kind, options.name)
        rows, help, place = _rows(entry, {}), cleandoc(entry.cls.__doc__ or ""), entry.place
    if options.json:
        description = {"kind": options.kind, "name": options.name, "place": place, "help": help, "options": rows}
        sys.stdout.write(json.dumps(description, indent=1) + "\n")
        return
    sys.stdout.write(f"{options.kind} {one_line(options.name)} ({place})\n{help}\n\n")
    for row in rows:
        comment = f"  # {row['help']}" if row["help"] else ""
        sys.stdout.write(f"{toml_line(row['name'], row['default'])}{comment}\n")


def _rows(entry: registry.Entry, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The options of a part and of the parts within it. values: by key, in place of the defaults"""
    rows = []
    for option in registry.options_within(entry.kind, entry.name, registry.choice_from(values)):
        value = values.get(option.key, None if option.default is REQUIRED else option.default)
        rows.append({"name": option.key, "default": value, "type": option.type_name, "help": option.help})
    return rows


def _model_of(folder: Path) -> tuple[str, registry.Entry, Mapping[str, Any]]:
    """One line about a model folder, the registered model, and the options that it was built with."""
    from nmt.artefact import Artefact
    from nmt.checkpoint import ModelFacts
    from nmt.runs import find_model
    from nmt.text.pipeline import Pipeline

    artefact = Artefact(find_model(folder), "model", "checkpoint")
    facts, pipeline = ModelFacts.read(artefact), Pipeline.load(artefact)
    languages = f"{pipeline.source_lang} to {pipeline.target_lang}"
    entries = f"{pipeline.source.size:,} and {pipeline.target.size:,} {'shared ' if pipeline.joint else ''}entries"
    summary = f"{facts.model}, {languages}, weights in {facts.weights}, vocabularies of {entries}"
    return one_line(summary), registry.find("model", facts.model), facts.options


COMMAND = Command(
    "describe",
    "Describe a part, a preset or a model folder, with its options.",
    DescribeOptions,
    run,
    positional=("kind", "name"),
)
