"""Write the pages that are made from code and data: `make docs`.

docs/reference/commands.md comes from the options classes of the commands and of the parts. The second half of
docs/peers.md comes from nmt/cli/peers.toml. nmt/extensions/serve/openapi.json comes from docs/openapi.py.
tests/hygiene/test_documents.py checks that they are current.
"""

import importlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import openapi

from nmt import registry
from nmt.cli import peers
from nmt.cli.command import Command, CommonOptions
from nmt.cli.commands import commands
from nmt.cli.help import command_sections, usage
from nmt.extensions.serve.protocols.own import OPENAPI_FILE
from nmt.options import REQUIRED, Option, options_of

FOLDER = Path(__file__).parent
MARKER = "<!-- From here on `make docs` writes this page, from nmt/cli/peers.toml. -->\n"


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, a blank line after it."""
    cells = [heading, *([cell.replace("|", "\\|") or "-" for cell in row] for row in rows)]
    lines = [f"| {' | '.join(row)} |\n" for row in cells]
    return "".join([lines[0], f"|{'---|' * len(heading)}\n", *lines[1:]]) + "\n"


def option_table(options: Iterable[Option]) -> str:
    """A table with a row for each option."""
    return table(("flag", "also", "value", "default", "meaning"), map(option_row, options))


def option_row(option: Option) -> tuple[str, ...]:
    negations = [flag for flag, negated in option.spellings().items() if negated and not option.default]
    others = [flag for flag in option.spellings() if flag != option.flag and flag not in negations]
    flag = option.label if option.positional else option.flag
    value = "" if option.type is bool else option.type_name
    also = ", ".join(f"`{other}`" for other in ([option.flag, *others] if option.positional else others))
    return f"`{flag}`", also, value, default_of(option), option.help + option.relations


def default_of(option: Option) -> str:
    default: Any = option.default
    if default is REQUIRED:
        return "required"
    if default is None or default == ():
        return "none"
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, tuple):
        return " ".join(map(str, default))
    return default.name if option.kind and not isinstance(default, str) else str(default)


def command_section(name: str) -> str:
    """A command: how it is called, examples, and its own options by heading."""
    command: Command = importlib.import_module(commands()[name].module).COMMAND
    sections = command_sections(command.own_groups(), command.headings)
    del sections["Common"]  # it has a section of its own
    tables = "".join(f"**{heading}**\n\n{option_table(options)}" for heading, options in sections.items() if options)
    examples = "\n".join(command.examples)
    kinds = ", ".join(f"[{kind}](#{kind})" for kind in command.kinds)
    parts = f"It also has the options of the chosen components: {kinds}.\n\n" if kinds else ""
    shell = f"```sh\n{usage(command, sections)}\n\n{examples}\n```\n\n"
    return f"### nmt {name}\n\n{command.summary}\n\n{shell}{parts}{tables}"


def part_section(kind: str) -> str:
    """The parts of a kind, each with its options."""
    sections = [f"### {kind}\n\n"]
    for name, summary in registry.summaries(kind).items():
        options = options_of(registry.find(kind, name).options)
        told = option_table(options) if options else "No options.\n\n"
        sections.append(f"#### {kind} {name}\n\n{summary}\n\n{told}")
    return "".join(sections)


def commands_page() -> str:
    """The text of docs/reference/commands.md."""
    presets = table(("preset", "what it is"), ((f"`{p.name}`", p.help) for p in registry.presets().values()))
    return (
        "# Commands, components and presets\n\n"
        "`make docs` writes this page from the code. `nmt COMMAND --help` shows the same in a terminal.\n"
        "[Settings](settings.md) says how values are written, and how files, presets and flags go together.\n\n"
        f"## Commands\n\n{''.join(map(command_section, commands()))}"
        f"### Options of every command\n\n{option_table(options_of(CommonOptions))}"
        "## Components\n\nThe spelling with the kind always works too: `--model.dropout`.\n\n"
        f"{''.join(map(part_section, registry.FOLDERS))}## Presets\n\n{presets}"
    ).rstrip("\n") + "\n"


def peers_page(page: str) -> str:
    """docs/peers.md with its second half written again."""
    before, marker, _ = page.partition(MARKER)
    sections = [
        f"### {'Commands' if command == 'commands' else f'nmt {command}'}\n\n"
        + (aliases_of(command) if command != "commands" else "")
        + table(
            ("there", "here"), ((f"`{peers.readable(word)}`", answer(command, text)) for word, text in words.items())
        )
        for command, words in peers.tables().items()
    ]
    return before + marker + "\n## Flag by flag\n\n" + "".join(sections).rstrip("\n") + "\n"


def answer(command: str, text: str) -> str:
    """What a page says for a word of another toolkit: flags and commands as code, then the remark."""
    head, separator, remark = peers.readable(text).partition("; ")
    if command == "commands":
        head = f"nmt {head}"
    return (f"`{head}`" if head.startswith(("-", "nmt ")) else head) + separator + remark


def aliases_of(command: str) -> str:
    """A table of the other names that the options of a command and of its components have."""
    own: Command = importlib.import_module(commands()[command].module).COMMAND
    options = [option for group in own.own_groups().values() for option in group]
    for kind in own.kinds:
        options += [each for name in registry.names(kind) for each in options_of(registry.options_class_of(kind, name))]
    rows = {}
    for option in options:
        others = [flag for flag, negated in option.spellings().items() if flag != option.flag and not negated]
        if others:
            rows[option.flag] = ", ".join(f"`{flag}`" for flag in others)
    return (
        "Other names of the same option:\n\n"
        + table(("option", "also"), ((f"`{flag}`", others) for flag, others in rows.items()))
        if rows
        else ""
    )


def pages() -> dict[Path, str]:
    """The text of each page that is written here."""
    other_toolkits = FOLDER / "peers.md"
    return {
        FOLDER / "reference/commands.md": commands_page(),
        other_toolkits: peers_page(other_toolkits.read_text(encoding="utf-8")),
        OPENAPI_FILE: json.dumps(openapi.describe(), indent=1) + "\n",
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
