"""The line between the core and the extensions: nothing outside `nmt/extensions/` imports from it or names its components."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from modules import FILES, ROOT, imported_modules, module_of, tree_of

from nmt import registry
from nmt.cli.commands import commands
from nmt.component_files import extension_of
from nmt.options import flag_of, options_of

CORE = [file for file in FILES if extension_of(module_of(file)) is None]
COMMON = {  # names of components and flags that are words of the core too
    "--check-lines": "a function of the translator",
    "--kernel": "a kind of component",
    "extension": "a part of this package",
    "gnmt": "a length penalty of beam search",
    "json": "a module of Python, and a form of input and output",
    "matmul": "the matrix products of a run, in its checkpoints",
    "model": "a kind of component, and of a folder",
    "moses": "its rules for punctuation, another step",
    "nmt": "this package, and its program",
    "relative": "a path within a folder",
    "target": "a side of a pair",
    "texts": "the texts of a stream",
}
ALLOWED = {  # between extensions, by the tree of docs/explanation/design.md
    ("ctranslate2", "searches"),
    ("ctranslate2", "toolkits"),
    ("details", "methods"),
    ("doctor", "watch"),
    ("documents", "texts"),
    ("methods", "fast"),
    ("methods", "vocabularies"),
    ("searches", "methods"),
    ("serve", "documents"),
    ("serve", "texts"),
    ("sweep", "watch"),
    ("toolkits", "vocabularies"),
    ("zoo", "variants"),
}


def imports() -> set[tuple[str, str]]:
    """Every import of a module of nmt by another: (importing, imported)."""
    return {(module_of(file), other) for file in FILES for other in imported_modules(file)}


def test_the_core_imports_no_extension():
    crossing = {(a, b) for a, b in imports() if extension_of(a) is None and extension_of(b) is not None}
    assert sorted(crossing) == []


def test_an_extension_imports_only_permitted_extensions():
    crossing = {(extension_of(a), extension_of(b)) for a, b in imports()}
    pairs = {(a, b) for a, b in crossing if a is not None and b is not None and a != b}
    assert sorted(pairs - ALLOWED) == sorted(ALLOWED - pairs) == []


def of_extensions() -> tuple[set[str], set[str], set[str]]:
    """What only extensions have: the names of components, flags, and commands as `nmt NAME`."""
    every = [(kind, name) for kind in registry.FOLDERS for name in registry.names(kind)]
    added = [part for part in every if extension_of(registry.documentation(*part)[1])]
    components = {name for _, name in added} - {name for _, name in set(every) - set(added)}
    nodes = [node for file in CORE for node in ast.walk(tree_of(file))]
    fields = {flag_of(ast.unparse(node.target)) for node in nodes if isinstance(node, ast.AnnAssign)}
    flags = {option.flag for part in added for option in options_of(registry.options_class_of(*part))} - fields
    its_commands = {f"nmt {name}" for name, file in commands().items() if extension_of(file.module)}
    return components - COMMON.keys(), flags - COMMON.keys(), its_commands


def words(file: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module but for docstrings, its fields of some `options` as flags, and its names as `comet-model`."""
    tree = tree_of(file)
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            yield node.lineno, node.value
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("options"):
            yield node.lineno, flag_of(node.attr)
        elif name := next((vars(node)[key] for key in ("id", "attr", "arg", "name") if key in vars(node)), None):
            word = re.sub("(?<=[a-z])(?=[A-Z])|_", "-", str(name)).strip("-").lower()
            if "-" in word:  # one word alone, such as `freeze`, may mean anything
                yield getattr(node, "lineno", 0), word


def test_the_core_names_no_component_of_an_extension():
    """No component's name, alone or after a flag such as `--model moe`; no flag, option or command that only extensions have."""
    components, flags, its_commands = of_extensions()
    found = []
    for file in CORE:
        for line, text in words(file):
            named = {name for name in components if f"{text}-".startswith(f"{name}-")}
            named |= components.intersection(re.findall(r"--[a-z][\w-]*[ =]([\w-]+)", text))
            named |= flags.intersection([flag_of(text), *re.findall(r"--[a-z][\w-]*", text)])
            named |= its_commands.intersection(re.findall(r"\bnmt [\w-]+", text))
            found += [(name, f"{file.relative_to(ROOT)}:{line}") for name in named]
    assert found == []
