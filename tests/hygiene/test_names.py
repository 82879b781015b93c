"""A public name means one thing in the whole package, and a docstring starts with one short sentence."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from modules import FILES, ROOT, tree_of

from nmt import registry
from nmt.component_files import REGISTERED

MAX_FIRST_LINE_WORDS = 25
SHARED = {  # one meaning, several modules
    "COMMAND": "each module of a command has its Command",
    "run": "each command is a function of this name: options, and for some the parts, in; an exit code out",
}


def public_names(file: Path) -> Iterator[str]:
    """The classes, functions and constants of a module that no underscore marks as its own."""
    for node in tree_of(file).body:
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


def test_every_exempted_name_is_still_shared():
    assert SHARED.keys() - CLASHES.keys() == set()


def test_the_first_line_of_a_docstring_is_one_short_sentence():
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    nodes = [node for file in FILES for node in ast.walk(tree_of(file)) if isinstance(node, documented)]
    first_lines = [(ast.get_docstring(node) or "").partition("\n")[0] for node in nodes]
    assert [line for line in first_lines if len(line.split()) > MAX_FIRST_LINE_WORDS] == []


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


def test_every_registered_class_is_seen_without_an_import():
    classes = [node for file in FILES for node in ast.walk(tree_of(file)) if isinstance(node, ast.ClassDef)]
    calls = [call for node in classes for call in node.decorator_list if isinstance(call, ast.Call)]
    made = [call.args[:2] for call in calls if ast.unparse(call.func).split(".")[-1] == "register"]
    named = [tuple(map(ast.literal_eval, arguments)) for arguments in made]
    assert [(kind, name) for kind, name in named if name not in registry._part_files(kind)] == [] != named
