"""`nmt list`: the parts and presets of each kind."""

import sys

from nmt import registry
from nmt.cli.command import Command
from nmt.errors import unknown
from nmt.options import opt, options_class


@options_class
class ListOptions:
    kind: str | None = opt(None, f"{', '.join(registry.FOLDERS)} or preset; all of them if none is given")
    json: bool = opt(False, "print JSON")


def run(options: ListOptions) -> None:
    """Print every name with one line of help, by kind."""
    kinds = [*registry.FOLDERS, "preset"]
    if options.kind is not None and options.kind not in kinds:
        raise unknown("kind of part", options.kind, kinds)
    table = {kind: _summaries(kind) for kind in kinds if options.kind in (None, kind)}
    if options.json:
        import json

        sys.stdout.write(json.dumps(table, indent=1) + "\n")
        return
    for kind, names in table.items():
        sys.stdout.write(f"{kind}\n")
        sys.stdout.writelines(f"  {name:<32} {summary}\n" for name, summary in names.items())


def _summaries(kind: str) -> dict[str, str]:
    if kind == "preset":
        return {name: preset.help for name, preset in registry.presets().items()}
    return registry.summaries(kind)


COMMAND = Command("list", "List the parts and presets of each kind.", ListOptions, run, positional=("kind",))
