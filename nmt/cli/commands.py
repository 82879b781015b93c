"""Finds the commands in the folders `cli/` of nmt and of its extensions, without importing their files."""

import re
from functools import cache
from typing import Final, NamedTuple

from nmt.component_files import Root
from nmt.registry import load_installed, roots

GROUPS: Final = {  # headings of `nmt --help`, in order, by the first command under each
    "prepare": "Prepare",
    "train": "Train",
    "translate": "Use",
    "export": "Convert",
    "list": "Look up",
}
_HEAD: Final = re.compile(r'"""`nmt ([\w-]+)`: (.*?)\.(?:"""|\n)')
_GROUP: Final = re.compile(r'^COMMAND = Command\(.*?group="(\w+)"', re.MULTILINE | re.DOTALL)


class CommandFile(NamedTuple):
    """The description of a command in its file. module: its name; summary: a phrase; group: a key of GROUPS"""

    module: str
    summary: str
    group: str


@cache
def commands() -> dict[str, CommandFile]:
    """All commands by name, in groups. The main command of a group comes first; commands of extensions and plug-ins come last."""
    load_installed()
    found = [item for root in roots() for item in _commands_of(root)]
    found.sort(key=lambda item: item[0] not in GROUPS)
    return {name: file for group in GROUPS for name, file in found if file.group == group}


def find_command(name: str) -> CommandFile | None:
    """The command with that name, or None. Most are in a file with the same name, and then no other file is read."""
    for root in roots() if name.isidentifier() else ():
        if found := dict(_commands_of(root, f"{name}.py")).get(name):
            return found
    return commands().get(name)


def _commands_of(root: Root, pattern: str = "*.py") -> list[tuple[str, CommandFile]]:
    found = []
    for file in sorted((root.folder / "cli").glob(pattern)):
        text = file.read_text(encoding="utf-8")
        if (head := _HEAD.match(text)) and (group := _GROUP.search(text)):
            name, summary = head.groups()
            module = f"{root.package}.cli.{file.stem}"
            found.append((name, CommandFile(module, summary[0].upper() + summary[1:], group[1])))
    return found
