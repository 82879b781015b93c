"""`nmt recipes`: list the recipes for published results, or write one into a folder."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nmt import signals
from nmt.artefact import check_output, new_folder
from nmt.cli.command import Command, print_json, print_lines
from nmt.errors import ResourceError, one_line, quoted, unknown
from nmt.files import read_bytes
from nmt.installation import recipes_folder
from nmt.log import log
from nmt.options import opt, options_class

RECIPE_KIND: Final = "recipe"  # the `kind` in the manifest of a written folder
STEPS: Final = "run.sh"
USES: Final = "Uses: "  # start of the line in a script's comment that lists the recipes it runs


@options_class
class RecipesOptions:
    name: str | None = opt(
        None, "recipe to describe or write; without it, list all", group="Input and output", common=True
    )
    output: str | None = opt(
        None,
        "folder for a copy of the recipe and its scripts",
        aliases=("o",),
        metavar="FOLDER",
        group="Input and output",
        common=True,
    )
    overwrite: bool = opt(False, "replace an earlier copy in --output", group="Input and output", common=True)
    json: bool = opt(False, "print JSON", group="Input and output", common=True)

    def __post_init__(self) -> None:
        if self.output is not None and self.name is None:
            raise ValueError("--output needs the name of a recipe (`nmt recipes` lists them)")
        if self.overwrite and self.output is None:
            raise ValueError("--overwrite needs --output")


@dataclass(frozen=True)
class Recipe:
    """A script that reproduces a published result.

    script: path relative to the recipes folder, such as toy/run.sh or table2.sh
    help: the comment at the top of the script; its first line says what the recipe does
    uses: the names of other recipes that it runs
    """

    script: Path
    help: str
    uses: tuple[str, ...]

    @property
    def summary(self) -> str:
        return self.help.partition("\n")[0]


def run(options: RecipesOptions) -> None:
    """List the recipes, describe one, or copy one to a folder to run it with bash.

    A recipe reproduces a result, from the data to the score. It writes its output to the folder `runs` in the working directory.
    """
    recipes = _recipes()
    if options.name is None:
        if options.json:
            print_json({name: recipe.summary for name, recipe in recipes.items()})
        else:
            print_lines(f"{name:<18}{recipe.summary}" for name, recipe in recipes.items())
        return
    if options.name not in recipes:
        raise unknown("recipe", options.name, recipes)
    recipe = recipes[options.name]
    if options.output is not None:
        _write(options.name, recipes, Path(options.output), options.overwrite)
        script = str(Path(options.output, recipe.script))
        if options.json:
            print_json({"name": options.name, "script": one_line(script)})
        log.info(f"run `bash {shlex.quote(script)}`")
    elif options.json:
        print_json({"name": options.name, "help": recipe.help})
    else:
        print_lines([recipe.help])
        log.info(f"`nmt recipes {options.name} --output FOLDER` copies the recipe to FOLDER")


def _recipes() -> dict[str, Recipe]:
    """The recipes by name: folders that contain a run.sh, and scripts at the top level that start with `#!`."""
    folder = recipes_folder()
    if not folder.is_dir():
        raise ResourceError(f"{quoted(folder)}: no such folder, so this installation has no recipes (reinstall nmt)")
    found = {path.parent.name: _read(path, folder) for path in folder.glob(f"*/{STEPS}")}
    found |= {path.stem: _read(path, folder) for path in folder.glob("*.sh") if path.read_bytes().startswith(b"#!")}
    return dict(sorted(found.items()))


def _read(script: Path, folder: Path) -> Recipe:
    """Read a recipe's description from the comment after the script's `#!` line."""
    head = []
    for line in script.read_text(encoding="utf-8").split("\n")[1:]:
        if not line.startswith("#"):
            break
        head.append(line.removeprefix("#").removeprefix(" "))
    used = [name for line in head if line.startswith(USES) for name in line.removeprefix(USES).split()]
    return Recipe(script.relative_to(folder), "\n".join(head), tuple(used))


def _write(name: str, recipes: Mapping[str, Recipe], output: Path, overwrite: bool) -> None:
    """Write a recipe, the recipes that it uses, and shared files. Raises UserError if the folder has other content."""
    check_output(output, RECIPE_KIND, overwrite)
    with signals.Signals(), new_folder(output, RECIPE_KIND, {"recipe": name}) as temporary:
        for file in _files((name, *recipes[name].uses), recipes):
            signals.check()
            target, content = temporary / file, read_bytes(recipes_folder() / file)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(content)
            if content.startswith(b"#!"):
                mode = target.stat().st_mode
                target.chmod(mode | (mode & 0o444) >> 2)  # everyone who may read the file may run it


def _files(names: tuple[str, ...], recipes: Mapping[str, Recipe]) -> list[Path]:
    """The files of the named recipes, and those that all recipes share, as relative paths. Results of recipes are left out."""
    folder = recipes_folder()
    files = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    return [
        file for file in files if not {"runs", "outputs"} & {*file.parts} and _owner(file, recipes) in (*names, None)
    ]


def _owner(file: Path, recipes: Mapping[str, Recipe]) -> str | None:
    """The recipe that a file belongs to, by its folder or the start of its name; None if all recipes share it."""
    if len(file.parts) > 1:
        return file.parts[0]
    return next((name for name in recipes if file.name.startswith(name)), None)


COMMAND = Command(
    "recipes",
    RecipesOptions,
    run,
    positional=("name",),
    group="list",
    examples=(
        "nmt recipes",
        "nmt recipes toy",
        "nmt recipes toy --output recipes",
    ),
)
