"""`nmt new-plugin`: write a working plug-in of one kind, as a starting point."""

import ast
import importlib
import keyword
import re
import shlex
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from nmt import registry
from nmt.cli.command import Command, print_json, print_lines
from nmt.cli.commands import find_command
from nmt.errors import UserError, one_line, quoted, storage_error, unknown
from nmt.files import read_bytes
from nmt.log import log
from nmt.options import REQUIRED, opt, options_class

SKELETONS: Final = Path(__file__).parents[1] / "skeletons"
FILE_NAME: Final = re.compile(r"[A-Za-z](?:[-_]?[A-Za-z\d])*\.py")


def skeletons() -> dict[str, Path]:
    """The skeleton file of each kind."""
    files = {kind: SKELETONS / f"{kind.replace('-', '_')}.py" for kind in registry.FOLDERS}
    return {kind: file for kind, file in files.items() if file.exists()}


@options_class
class NewPluginOptions:
    kind: str = opt(
        REQUIRED, "kind of component to write, such as model (nmt list)", group="Input and output", common=True
    )
    file: str = opt(REQUIRED, "file to write, such as my_model.py", group="Input and output", common=True)
    json: bool = opt(False, "print JSON", group="Input and output")


def run(options: NewPluginOptions) -> None:
    """Write a plug-in with one working component of a kind, and print two commands that use it.

    The file's name gives the component its name: `my_model.py` registers `my-model`. An existing file is never overwritten.
    """
    kind, file, known = options.kind, Path(options.file), skeletons()
    if kind not in known:
        raise unknown("kind of component", kind, known)
    skeleton = read_bytes(known[kind]).decode()
    names = _names(kind, file, skeleton)
    text, commands = _renamed(skeleton, kind, names, file.name), []
    for command in example_commands(skeleton):
        commands.append(_renamed(command, kind, names, shlex.quote(str(file))))
    try:
        with file.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except FileExistsError:
        raise UserError(f"{quoted(file)} already exists and is never overwritten (choose another file name)") from None
    except OSError as error:
        raise storage_error(error, file) from None
    log.info(f"{quoted(file)}: wrote {kind} '{names.component}' (edit the parts marked CHANGE); these commands use it:")
    if options.json:
        print_json({"kind": kind, "name": names.component, "file": one_line(str(file)), "commands": commands})
    else:
        print_lines(commands)


class _Names(NamedTuple):
    """The names of a new component: `my_model` as an option, `my-model` in the registry, and `MyModel` as a class."""

    option: str
    component: str
    cls: str


def _names(kind: str, file: Path, skeleton: str) -> _Names:
    """The names that a file gives to its component. Raises UserError if they are invalid or already taken."""
    if not FILE_NAME.fullmatch(file.name):
        example = f"my_{kind.replace('-', '_')}.py"
        raise UserError(
            f"{quoted(file)}: the name must consist of ASCII letters and digits with single _ between them ({example})"
        )
    option = re.sub(r"(?<=[a-z\d])(?=[A-Z])", "_", file.stem).replace("-", "_").lower()
    component, cls = option.replace("_", "-"), "".join(word.capitalize() for word in option.split("_"))
    if keyword.iskeyword(option):
        raise UserError(f"{quoted(file)}: '{option}' is a Python keyword (choose another file name)")
    if component in registry.names(kind):
        raise UserError(f"{quoted(file)}: the {kind} '{component}' already exists (choose another file name)")
    if f"\n    {_placeholders(kind).option}: " in skeleton and option in _options_of_examples(skeleton):
        raise UserError(f"{quoted(file)}: --{component} is already a flag of nmt (choose another file name)")
    words, old = re.findall(r"\w+", skeleton), _placeholders(kind).cls
    others = {word for word in words if not word.startswith(old)}
    if any(word.replace(old, cls) in others for word in words if word.startswith(old)):  # for example, Model
        cls = f"My{cls}"
    return _Names(option, component, cls)


def _options_of_examples(skeleton: str) -> set[str]:
    """The names of all options, except those of plug-ins, of the commands in a skeleton's examples."""
    files = (find_command(line.split()[1]) for line in example_commands(skeleton))
    commands: list[Command] = [importlib.import_module(file.module).COMMAND for file in files if file]
    groups = chain(*(command.own_groups().values() for command in commands))
    return {name.replace("-", "_") for option in chain(*groups) for name in (option.name, *option.aliases)}


def _placeholders(kind: str) -> _Names:
    """The placeholder names in the skeleton for a kind."""
    words = kind.split("-")
    return _Names(
        "_".join(["my", *words]), "-".join(["my", *words]), "".join(word.capitalize() for word in ["my", *words])
    )


def _renamed(text: str, kind: str, names: _Names, file: str) -> str:
    """Text from the skeleton with the new names in place of the old ones. file: how the text refers to the plug-in's file"""
    new = dict(zip(_placeholders(kind), names, strict=True))
    path = f"{_placeholders(kind).option}.py"
    return re.sub("|".join(map(re.escape, [path, *new])), lambda found: new.get(found[0], file), text)


def example_commands(skeleton: str) -> Iterator[str]:
    """The commands in the docstring of a skeleton, one per line."""
    docstring = ast.get_docstring(ast.parse(skeleton)) or ""
    return (" ".join(line.split()) for line in docstring.split("\n") if line.lstrip().startswith("nmt "))


COMMAND = Command(
    "new-plugin",
    NewPluginOptions,
    run,
    positional=("kind", "file"),
    greedy=False,
    group="list",
    examples=(
        "nmt new-plugin model my_model.py",
        "nmt new-plugin decoder my_decoder.py",
        "nmt new-plugin metric my_metric.py --json",
    ),
)
