"""Finds components and presets by reading the files of nmt, its extensions and plug-ins, without importing them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from nmt.options import flat

PACKAGE: Final = Path(__file__).parent
PRESETS_FILE: Final = "presets.toml"
REGISTERED: Final = re.compile(  # groups: kind, name, options class, and the class's docstring if any
    r'''^@(?:nmt\.)?register\(\s*["']([\w-]+)["'],\s*["']([^"'\n]+)["'],\s*(\w+).*?^class .*?:\n(?:    r?"""(.*?)""")?''',
    re.MULTILINE | re.DOTALL,
)


class Root(NamedTuple):
    """A folder with one subfolder per kind of component, such as that of nmt or of an extension. package: its import name"""

    package: str
    folder: Path


class ComponentFile(NamedTuple):
    """What a file says about its component. options: name of the options class; docstring: docstring of the component's class"""

    module: str
    file: Path
    options: str
    docstring: str


@dataclass(frozen=True)
class Preset:
    """A named set of options for any components and for the trainer, by key.

    on_cpu: what it can train without a GPU; empty if a CPU is too slow
    """

    name: str
    help: str
    values: Mapping[str, Any]
    place: str
    on_cpu: str = ""


@cache
def own_roots() -> tuple[Root, ...]:
    """The folder of nmt, then the folders of its extensions by name."""
    extensions = sorted(file.parent for file in (PACKAGE / "extensions").glob("*/__init__.py"))
    return Root("nmt", PACKAGE), *(Root(f"nmt.extensions.{folder.name}", folder) for folder in extensions)


def extension_of(place: str) -> str | None:
    """The name of the extension that a module or file belongs to; None if it belongs to the core or to a plug-in.

    place: module or file, such as `nmt.extensions.zoo.models.gnmt` or `nmt/extensions/zoo/presets.toml`
    """
    found = re.match(r"nmt[./]extensions[./](\w+)", place)
    return found[1] if found else None


@cache
def component_files(kind: str, folder: str, roots: tuple[Root, ...]) -> dict[str, ComponentFile]:
    """The components of a kind by name. folder: the kind's subfolder of each root"""
    return {
        name: ComponentFile(f"{root.package}.{folder}.{file.stem}", file, options, docstring)
        for root in reversed(roots)  # if two roots use the same name, the first root wins
        for file in sorted((root.folder / folder).glob("*.py"))
        for registered, name, options, docstring in REGISTERED.findall(file.read_text(encoding="utf-8"))
        if registered == kind
    }


@cache
def preset_files(roots: tuple[Root, ...]) -> dict[str, Preset]:
    """The presets in the presets.toml files of some folders. A preset may extend one from another folder."""
    import tomllib

    tables, places = dict[str, dict[str, Any]](), dict[str, str]()
    for root in reversed(roots):  # if two roots use the same name, the first root wins
        if (file := root.folder / PRESETS_FILE).exists():
            of_file = tomllib.loads(file.read_text(encoding="utf-8"))
            tables |= of_file
            places |= dict.fromkeys(of_file, f"{root.package.replace('.', '/')}/{PRESETS_FILE}")

    def values_of(name: str) -> dict[str, Any]:
        table = {key: tuple(value) if isinstance(value, list) else value for key, value in flat(tables[name]).items()}
        inherited = values_of(str(table["extends"])) if "extends" in table else {}
        return inherited | {key: value for key, value in table.items() if key not in ("help", "extends", "on_cpu")}

    return {
        name: Preset(name, table["help"], values_of(name), places[name], table.get("on_cpu", ""))
        for name, table in tables.items()
    }
