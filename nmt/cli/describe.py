"""`nmt describe`: one part or preset, with its options."""

import json
import sys
from dataclasses import dataclass
from inspect import cleandoc

from nmt import registry
from nmt.cli.command import Command
from nmt.options import REQUIRED, opt, options_of, to_toml


@dataclass(frozen=True, kw_only=True)
class DescribeOptions:
    kind: str = opt(REQUIRED, "model, criterion, optimizer, schedule, decoder or preset")
    name: str = opt(REQUIRED, "its name (nmt list KIND)")
    json: bool = opt(False, "print JSON")


def run(options: DescribeOptions) -> None:
    """Print what a part is, where it is defined, and each of its options with type, default and help."""
    if options.kind == "preset":
        preset = registry.find_preset(options.name)
        rows = [{"name": key, "default": value, "type": "", "help": ""} for key, value in preset.values.items()]
        told, place = preset.help, preset.place
    else:
        entry = registry.find(options.kind, options.name)
        rows = [
            {
                "name": o.name,
                "default": None if o.default is REQUIRED else o.default,
                "type": o.type_name,
                "help": o.help,
            }
            for o in options_of(entry.options)
        ]
        told, place = cleandoc(entry.cls.__doc__ or ""), entry.place
    if options.json:
        found = {"kind": options.kind, "name": options.name, "place": place, "help": told, "options": rows}
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return
    sys.stdout.write(f"{options.kind} {options.name} ({place})\n{told}\n\n")
    for row in rows:
        default = to_toml(row["default"])  # as a settings file may say it
        sys.stdout.write(f"{row['name']} = {default}{'  # ' + str(row['help']) if row['help'] else ''}\n")


COMMAND = Command(
    "describe", "One part or preset: what it is and its options.", DescribeOptions, run, positional=("kind", "name")
)
