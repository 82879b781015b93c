"""The modules of nmt as files, and what each imports, for tests of the structure."""

import ast
from functools import cache
from pathlib import Path

import nmt

ROOT = Path(nmt.__file__).parent
FILES = sorted(
    file for file in ROOT.rglob("*.py") if "skeletons" not in file.parts
)  # those are texts of `nmt new-plugin`


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def module_of(file: Path) -> str:
    return ".".join(("nmt", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def imported_modules(file: Path) -> set[str]:
    """The modules of nmt that a file imports anywhere, at its top or within a function, by name."""
    names = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names & MODULES - {module_of(file)}


MODULES = {module_of(path) for path in FILES}
