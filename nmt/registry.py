"""The registry of parts: kind of part = folder = flag = saved key.

Parts come from the built-in folders, from pip entry points of the group `nmt.plugins`, and from `--plugin`. Nothing is
imported before it is looked up.
"""

import ast
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, TypeVar

from nmt.errors import UserError, quoted, unknown
from nmt.options import make, options_of

Part = TypeVar("Part", bound=Callable[..., Any])

FOLDERS: Final = {
    "model": "models",
    "criterion": "criteria",
    "optimizer": "optimizers",
    "schedule": "schedules",
    "decoder": "decoders",
    "metric": "metrics",
}
NOT_PARTS: Final = {
    "base",
    "filters",
    "banned",
    "checks",
    "sacrebleu",
    "significance",
}  # files of those folders that hold no part


@dataclass(frozen=True)
class Entry:
    """A registered part."""

    kind: str
    name: str
    cls: Callable[..., Any]
    options: type
    place: str

    @property
    def summary(self) -> str:
        return (self.cls.__doc__ or "").strip().split("\n")[0]


@dataclass(frozen=True)
class Preset:
    """A named set of options, for any parts and for the trainer."""

    name: str
    help: str
    values: Mapping[str, Any]
    place: str

    @property
    def origin(self) -> str:
        """How it is named as the origin of a value."""
        return f"preset {self.name}"


@dataclass
class _Shelf:
    parts: dict[tuple[str, str], Entry] = field(default_factory=dict)
    presets: dict[str, Preset] = field(default_factory=dict)
    plugins: dict[str, str] = field(default_factory=dict)
    entry_points_loaded: bool = False


_shelf = _Shelf()


def _check_kind(kind: str) -> None:
    if kind not in FOLDERS:
        raise unknown("kind of part", kind, FOLDERS)


def _module_of(kind: str, name: str) -> str:
    return f"nmt.{FOLDERS[kind]}.{name.replace('-', '_')}"


def _built_in(kind: str) -> list[str]:
    """Names of the built-in parts of a kind, by the names of their files; imports none of them."""
    folder = Path(__file__).parent / FOLDERS[kind]
    files = {module.name for module in pkgutil.iter_modules([str(folder)])} - NOT_PARTS
    return sorted(file.replace("_", "-") for file in files)


def register(kind: str, name: str, options: type) -> Callable[[Part], Part]:
    """Class decorator that makes a part known by kind and name. Two parts of one name are a UserError."""
    _check_kind(kind)

    def enter(cls: Part) -> Part:
        place = cls.__module__
        other = _shelf.parts.get((kind, name))
        taken = other.place if other else None
        if taken is None and name in _built_in(kind) and place != _module_of(kind, name):
            taken = _module_of(kind, name)
        if taken is not None:
            raise UserError(f"{kind} '{name}' is registered twice: in {taken} and in {place}; rename one of them")
        options_of(options)  # a field without opt() fails here, where it is written
        _shelf.parts[kind, name] = Entry(kind, name, cls, options, place)
        return cls

    return enter


def preset(name: str, help: str, **values: Any) -> None:
    """Make a set of options known by name, for `--preset`."""
    place = sys._getframe(1).f_globals["__name__"]
    if name in _shelf.presets:
        raise UserError(f"preset '{name}' is registered twice: in {_shelf.presets[name].place} and in {place}")
    _shelf.presets[name] = Preset(name, help, values, place)


def load_plugin(given: str) -> None:
    """Import a plug-in: the path of a file or folder, or the name of a module. Once, however often it is named."""
    path = Path(given)
    target = path / "__init__.py" if path.is_dir() else path
    key = str(target.resolve()) if target.exists() else given
    if key in _shelf.plugins:
        return
    try:
        if target.exists():
            name = f"nmt_plugin_{len(_shelf.plugins)}_{path.stem}"
            spec = importlib.util.spec_from_file_location(name, target)
            if spec is None or spec.loader is None:
                raise UserError(f"plug-in {given}: not a Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module  # dataclasses look their module up here
            spec.loader.exec_module(module)
        else:
            importlib.import_module(given)
    except UserError:
        raise
    except Exception as error:
        if not target.exists() and _is_missing(given, error):
            told = f"plug-in {quoted(given)}: no such file, folder with an __init__.py, or module"
            raise UserError(told) from None
        raise UserError(f"plug-in {given} could not be loaded: {type(error).__name__}: {error}") from error
    _shelf.plugins[key] = given


def _is_missing(given: str, error: Exception) -> bool:
    """Whether it is the module `given` that was not found, and not one that it imports."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return given.startswith(".") or "/" in given or (name is not None and f"{given}.".startswith(f"{name}."))


def _load_entry_points() -> None:
    if not _shelf.entry_points_loaded:
        _shelf.entry_points_loaded = True
        for point in entry_points(group="nmt.plugins"):
            try:
                point.load()
            except UserError:
                raise
            except Exception as error:
                told = f"plug-in {point.name} ({point.value}) could not be loaded: {type(error).__name__}: {error}"
                raise UserError(told) from error


def names(kind: str) -> list[str]:
    """All parts of a kind by name. Built-in ones are found by their file and not imported."""
    _check_kind(kind)
    _load_entry_points()
    return sorted({*_built_in(kind), *(name for k, name in _shelf.parts if k == kind)})


def is_known(kind: str, name: str) -> bool:
    """Whether there is a part of that kind and name. Entry points are asked where it is not built in."""
    _check_kind(kind)
    if (kind, name) not in _shelf.parts and name in _built_in(kind):
        importlib.import_module(_module_of(kind, name))
    if (kind, name) not in _shelf.parts:
        _load_entry_points()
    return (kind, name) in _shelf.parts


def find(kind: str, name: str) -> Entry:
    """The part of that kind and name; UserError with the nearest name if there is none."""
    if not is_known(kind, name):
        raise UserError(f"{unknown(kind, name, names(kind))}; a plug-in's is known when --plugin names it")
    return _shelf.parts[kind, name]


def summaries(kind: str) -> dict[str, str]:
    """What each part of a kind is, in a line, by name. Built-in ones are read and not imported, which takes seconds."""
    found = {}
    for name in names(kind):
        entry = _shelf.parts.get((kind, name))
        found[name] = entry.summary if entry else _summary_in_file(kind, name)
    return found


def _summary_in_file(kind: str, name: str) -> str:
    file = Path(__file__).parent / FOLDERS[kind] / f"{name.replace('-', '_')}.py"
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.ClassDef) and node.decorator_list:
            words = [ast.unparse(word) for mark in node.decorator_list for word in getattr(mark, "args", ())]
            if words[:2] == [repr(kind), repr(name)]:
                return (ast.get_docstring(node) or "").split("\n")[0]
    return find(kind, name).summary


def build(kind: str, name: str, values: Mapping[str, Any], *context: Any) -> Any:
    """The part itself, made from its options among `values` and from what its kind is given (see each base.py)."""
    entry = find(kind, name)
    return entry.cls(make(entry.options, values), *context)


def presets() -> dict[str, Preset]:
    """All presets by name."""
    importlib.import_module("nmt.presets")
    _load_entry_points()
    return dict(sorted(_shelf.presets.items()))


def find_preset(name: str) -> Preset:
    """The preset of that name; UserError with the nearest name if there is none."""
    found = presets()
    if name not in found:
        raise unknown("preset", name, found)
    return found[name]
