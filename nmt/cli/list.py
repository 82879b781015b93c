"""`nmt list`: list the components and presets of each kind."""

from nmt import registry
from nmt.cli.command import Command, print_json, print_lines
from nmt.errors import unknown
from nmt.options import opt, options_class


@options_class
class ListOptions:
    kind: str | None = opt(
        None, "kind of component, or preset; default: list kinds", group="Input and output", common=True
    )
    json: bool = opt(False, "print JSON", group="Input and output", common=True)


def run(options: ListOptions) -> None:
    """List the components and presets of each kind."""
    kinds = [*registry.FOLDERS, "preset"]
    if options.kind is not None and options.kind not in kinds:
        raise unknown("kind of component", options.kind, kinds)
    table = {kind: registry.summaries(kind) for kind in kinds if options.kind in (None, kind)}
    if options.json:
        print_json(table)
        return
    for kind, names in table.items():
        print_lines([kind, *(f"  {name:<32} {summary}" for name, summary in names.items())])


COMMAND = Command(
    "list",
    ListOptions,
    run,
    positional=("kind",),
    greedy=False,
    group="list",
    examples=(
        "nmt list",
        "nmt list model",
        "nmt list preset --json",
    ),
)
