"""A public name means one thing in the whole package, and a docstring begins with one short sentence."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import nmt
from nmt import registry
from nmt.component_files import REGISTERED

ROOT = Path(nmt.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
MAX_FIRST_LINE_WORDS = 25
SHARED = {  # one meaning, several modules
    "COMMAND": "each module of a command has its Command",
    "run": "each command is a function of this name: options, and for some the parts, in; an exit code out",
}


def public_names(file: Path) -> Iterator[str]:
    """The classes, functions and constants of a module that no underscore marks as its own."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))


def places_by_name() -> dict[str, list[str]]:
    places = defaultdict(list)
    for file in FILES:
        for name in set(public_names(file)):
            places[name].append(str(file.relative_to(ROOT)))
    return places


CLASHES = {name: places for name, places in places_by_name().items() if len(places) > 1}


def test_a_public_name_means_one_thing():
    assert {name: places for name, places in CLASHES.items() if name not in SHARED} == {}


def test_every_name_that_is_excepted_is_still_shared():
    assert SHARED.keys() - CLASHES.keys() == set()


@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}/{f.name}")
def test_the_first_line_of_a_docstring_is_one_short_sentence(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (docstring := ast.get_docstring(node)):
            first_line = docstring.partition("\n")[0]
            assert len(first_line.split()) <= MAX_FIRST_LINE_WORDS, first_line


@pytest.mark.parametrize(
    ("decorator", "name"),
    [
        ('@register("schedule", "flat", FlatOptions)', "flat"),
        ('@nmt.register("schedule", "flat", FlatOptions)', "flat"),
        ('@nmt.register(\n    "schedule",\n    "flat",\n    FlatOptions,\n)', "flat"),
    ],
)
def test_the_scan_sees_each_way_of_writing_the_decorator(decorator, name):
    text = f'{decorator}\nclass Flat(Schedule):\n    """A flat schedule."""\n'
    assert REGISTERED.findall(text) == [("schedule", name, "FlatOptions", "A flat schedule.")]


@pytest.mark.parametrize("folder", registry.FOLDERS.values())
def test_every_registered_class_is_seen_without_an_import(folder):
    for file in (ROOT / folder).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            for call in node.decorator_list if isinstance(node, ast.ClassDef) else []:
                if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == "register":
                    kind, name = (ast.literal_eval(argument) for argument in call.args[:2])
                    assert name in registry._part_files(kind), f"{file}: {kind} {name}"
