"""`nmt describe`: describe a component, a preset or a model folder, with its options."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt import registry
from nmt.cli.command import Command, print_json
from nmt.component_files import extension_of
from nmt.errors import UserError, one_line, quoted, unknown
from nmt.options import REQUIRED, opt, options_class, toml_line


@options_class
class DescribeOptions:
    kind: str = opt(
        REQUIRED,
        "component kind, preset or folder; may be omitted",
        group="Input and output",
        common=True,
    )
    name: str = opt("", "component, preset, or path to a model or run", group="Input and output", common=True)
    json: bool = opt(False, "print JSON", group="Input and output", common=True)


def run(options: DescribeOptions) -> None:
    """Describe a component, a preset or a model folder, with its options."""
    kind, name = (options.kind, options.name) if options.name else (_kind_of(options.kind), options.kind)
    if kind == "preset":
        preset = registry.find_preset(name)
        rows = [{"name": key, "default": value, "type": "", "help": ""} for key, value in preset.values.items()]
        help, place = preset.help, preset.place
        if preset.on_cpu:
            help += f"; without a GPU: {preset.on_cpu}"
    elif kind == "folder":
        help, place, rows = _folder(Path(name))
    else:
        (help, place), rows = registry.documentation(kind, name), _rows(kind, name, {})
    extension = extension_of(place)
    if options.json:
        description = {"kind": kind, "name": name, "place": place, "extension": extension, "help": help}
        print_json({**description, "options": rows})
        return
    belongs = f"extension {extension}: {place}" if extension else place
    sys.stdout.write(f"{kind} {one_line(name)} ({belongs})\n{help}\n\n")
    for row in rows:
        comment = f"  # {row['help']}" if row["help"] else ""
        sys.stdout.write(f"{toml_line(row['name'], row['default'])}{comment}\n")


def _kind_of(name: str) -> str:
    """The kind of the component with this name. Raises UserError if there is none or more than one."""
    if name in (*registry.FOLDERS, "preset", "folder"):
        names = "add the path of a model or run" if name == "folder" else f"`nmt list {name}` lists the names"
        raise UserError(f"NAME is missing after '{name}' ({names})")
    kinds = [kind for kind in registry.FOLDERS if name in registry.names(kind)]
    kinds += ["preset"] if name in registry.presets() else []
    kinds += ["folder"] if not kinds and Path(name).is_dir() else []
    if len(kinds) == 1:
        return kinds[0]
    if kinds:
        choices = " or ".join(f"`nmt describe {kind} {name}`" for kind in kinds)
        raise UserError(f"'{quoted(name)}' is ambiguous (use {choices})")
    known = [*registry.presets(), *(part for kind in registry.FOLDERS for part in registry.names(kind))]
    raise unknown("component or preset", name, known, listed_by="nmt list")


def _rows(kind: str, name: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The options of a component and its inner components. values: values by key that replace the defaults"""
    rows = []
    for option in registry.options_within(kind, name, registry.choice_from(values)):
        value = values.get(option.key, None if option.default is REQUIRED else option.default)
        rows.append({"name": option.key, "default": value, "type": option.type_name, "help": option.help})
    return rows


def _folder(folder: Path) -> tuple[str, str, list[dict[str, Any]]]:
    """A summary of the model in a folder, the model's module, and the options that the model was built with.

    A folder from `nmt export --format ctranslate2` has no options.
    """
    from nmt.artefact import Artefact
    from nmt.engines.base import engines, kind_of_folder
    from nmt.models.saved import ModelFacts
    from nmt.runs import find_model
    from nmt.text.pipeline import Pipeline

    model = find_model(folder)
    artefact = Artefact(model, kind := kind_of_folder(model))
    pipeline = Pipeline.load(artefact)
    languages = f"{pipeline.source_lang} to {pipeline.target_lang}"
    entries = f"{pipeline.source.size:,} and {pipeline.target.size:,} {'shared ' if pipeline.joint else ''}entries"
    details = f"vocabularies of {entries}{f', context of {pipeline.context}' if pipeline.context else ''}"
    manifest = artefact.manifest
    for engine in engines().values():
        if kind in engine.folder_kinds:
            return one_line(f"{engine.description(manifest)}, {languages}, {details}"), kind, []
    facts = ModelFacts.read(artefact)
    summary = f"{facts.model}, {languages}, weights in {facts.weights}, {details}"
    if isinstance(averaged := manifest.get("averaged"), list):
        summary += f"; the mean of {quoted(', '.join(map(str, averaged)))}"
    elif update := manifest.get("update"):
        summary += f"; after update {quoted(update)}"
    _, place = registry.documentation("model", facts.model)
    return one_line(summary), place, _rows("model", facts.model, facts.options)


COMMAND = Command(
    "describe",
    DescribeOptions,
    run,
    positional=("kind", "name"),
    greedy=False,
    group="list",
    examples=(
        "nmt describe model transformer",
        "nmt describe beam",
        "nmt describe preset transformer-base",
    ),
)
