"""The registry of components. Each kind has its own folder, flag and key in saved files.

Components come from the folders of nmt, from its extensions (`nmt/extensions/`), from pip entry points (`nmt.plugins`), and
from `--plugin`. An extension has the same layout as nmt: `models/gnmt.py`, with its options class in `models/options.py`. The
package of a plug-in may also have this layout. Nothing is imported before it is looked up. Presets are named sets of options for
components and for the trainer.
"""

import dataclasses
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar, dataclass_transform

from nmt.component_files import ComponentFile, Preset, Root, component_files, own_roots, preset_files
from nmt.errors import UserError, needing_torch, quoted, unknown
from nmt.log import log
from nmt.open_options import AnyOptions, opened_class, place_of_class, shared_class
from nmt.options import REQUIRED, NoOptions, Option, Part, make, opened, options_class, options_of

PartClass = TypeVar("PartClass", bound=Callable[..., Any])

FOLDERS: Final = {
    "model": "models",
    "criterion": "criteria",
    "kernel": "kernels",
    "optimizer": "optimizers",
    "schedule": "schedules",
    "decoder": "decoders",
    "metric": "metrics",
    "engine": "engines",
    "pass": "passes",
    "format": "formats",
    "evaluation": "evaluations",
    "text-check": "text_checks",
    "scoring": "scorings",
    "mixer": "mixers",
    "ffn": "feed_forwards",
    "positions": "positions",
    "start": "starts",
    "noise": "noises",
    "reporter": "reporters",
    "weight-format": "weight_formats",
    "search-speedup": "search_speedups",
    "training-speedup": "training_speedups",
    "storage": "storages",
    "subword": "subwords",
    "tokenizer": "tokenizers",
    "filter": "filters",
    "wrapper": "wrappers",
    "viewer": "viewers",
    "figure": "figures",
    "preparation": "preparations",
    "column": "columns",
    "plan": "plans",
    "preview": "previews",
    "toolkit": "toolkits",
    "protocol": "protocols",
}
NO_VALUES: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True)
class Entry:
    """A registered component: its class, its options class and the module that defines them."""

    kind: str
    name: str
    cls: Callable[..., Any]
    options: type
    place: str


@dataclass
class _Shelf:
    """Everything registered so far in this process.

    plugins: the loaded values of `--plugin`, by path or module
    plugin_modules: the top-level module of each plug-in
    broken: the error of each installed plug-in that could not be loaded, by entry point
    roots: the folders of plug-ins that are packages
    """

    parts: dict[tuple[str, str], Entry] = field(default_factory=dict)
    presets: dict[str, Preset] = field(default_factory=dict)
    plugins: dict[str, str] = field(default_factory=dict)
    plugin_modules: set[str] = field(default_factory=set)
    broken: dict[str, str] = field(default_factory=dict)
    roots: tuple[Root, ...] = ()
    entry_points_loaded: bool = False


_shelf = _Shelf()


# Registering


def register(kind: str, name: str, options: type) -> Callable[[PartClass], PartClass]:
    """Class decorator that registers a component under a kind and a name.

    Raises UserError if the kind is unknown, if the name is taken, or if `options` is not an options class with `opt()` fields.
    """
    _check_kind(kind)
    if not dataclasses.is_dataclass(options):
        raise UserError(f"{options.__name__} is not an options class (decorate it with @options_class)")

    def enter(cls: PartClass) -> PartClass:
        place = cls.__module__
        other = _shelf.parts.get((kind, name))
        found = _part_files(kind).get(name)
        taken = other.place if other else found.module if found else place
        if other or taken != place:
            raise UserError(f"{kind} '{name}' is already registered by {_readable(taken)} (choose another name)")
        options_of(options)
        _shelf.parts[kind, name] = Entry(kind, name, cls, options, place)
        cls.part_name = name  # type: ignore[attr-defined]
        return cls

    return enter


def preset(name: str, help: str, *, on_cpu: str = "", **values: Any) -> None:
    """Register a preset for `--preset`. The keys of an inner component's options have dots: `**{"criterion.decoder": "beam"}`.

    on_cpu: what it can train without a GPU, such as "an hour, thousands of pairs"; empty if a CPU is too slow
    """
    place = sys._getframe(1).f_globals["__name__"]
    other = _shelf.presets.get(name) or preset_files(roots()).get(name)
    if other:
        raise UserError(f"preset '{name}' is already registered by {other.place} (choose another name)")
    _shelf.presets[name] = Preset(name, help, values, place, on_cpu)


# Looking up


def names(kind: str) -> list[str]:
    """The names of all components of a kind, sorted. Imports only plug-ins."""
    _check_kind(kind)
    load_installed()
    return sorted({*_part_files(kind), *(name for k, name in _shelf.parts if k == kind)})


def files(kind: str) -> list[Path]:
    """The files of the components of a kind, from nmt and from plug-ins that are packages."""
    return [found.file for found in _part_files(kind).values()]


def find(kind: str, name: str) -> Entry:
    """The component of this kind and name. Raises UserError, with the most similar name, if there is none."""
    _check_kind(kind)
    if (kind, name) not in _shelf.parts and name not in _part_files(kind):
        load_installed()
    if (kind, name) not in _shelf.parts and name in _part_files(kind):
        importlib.import_module(_part_files(kind)[name].module)
    if (kind, name) not in _shelf.parts:
        given = ", ".join(_shelf.plugins.values())
        hint = f"{quoted(given)} registers no such {kind}" if given else "--plugin FILE loads a plug-in"
        raise UserError(f"{unknown(kind, name, names(kind), f'nmt list {kind}')}; {hint}{_broken_plugins()}")
    return _shelf.parts[kind, name]


def options_class_of(kind: str, name: str) -> type:
    """The options class of a component. Raises UserError if there is no such component.

    If the folder of the component has an `options.py`, only that file is imported, because the component may need torch.
    """
    found = _part_files(kind).get(name) if kind in FOLDERS and (kind, name) not in _shelf.parts else None
    if found and found.options == NoOptions.__name__:
        return NoOptions
    if found and found.file.with_name("options.py").exists():
        module = importlib.import_module(f"{found.module.rpartition('.')[0]}.options")
        if hasattr(module, found.options):
            return getattr(module, found.options)  # type: ignore[no-any-return]
    return find(kind, name).options


def summaries(kind: str) -> dict[str, str]:
    """The first line of each component's docstring, or the help of each preset, by name. Imports only plug-ins."""
    if kind == "preset":
        return {name: preset.help for name, preset in presets().items()}
    return {name: documentation(kind, name)[0].split("\n")[0] for name in names(kind)}


def documentation(kind: str, name: str) -> tuple[str, str]:
    """The docstring of a component's class, and the name of its module. Imports only plug-ins.

    Raises UserError if there is no such component.
    """
    if (kind, name) in _shelf.parts or name not in _part_files(kind):
        entry = find(kind, name)
        return inspect.cleandoc(entry.cls.__doc__ or ""), _readable(entry.place)
    found = _part_files(kind)[name]
    return inspect.cleandoc(found.docstring), found.module


def presets() -> dict[str, Preset]:
    """All presets by name, sorted."""
    load_installed()
    return dict(sorted((preset_files(roots()) | _shelf.presets).items()))


def find_preset(name: str) -> Preset:
    """The preset with this name. Raises UserError, with the most similar name, if there is none."""
    known = presets()
    if name not in known:
        raise UserError(f"{unknown('preset', name, known, 'nmt list preset')}{_broken_plugins()}")
    return known[name]


def _check_kind(kind: str) -> None:
    if kind not in FOLDERS:
        raise unknown("kind of component", kind, FOLDERS)


def roots() -> tuple[Root, ...]:
    """The folders that contain components: nmt's own, then its extensions by name, then plug-ins."""
    return (*own_roots(), *_shelf.roots)


def _part_files(kind: str) -> dict[str, ComponentFile]:
    return component_files(kind, FOLDERS[kind], roots())


# Options classes that are open to components


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def open_options_class(
    *kinds: str, shared: Sequence[str] = (), declaring: str = ""
) -> Callable[[type[AnyOptions]], type[AnyOptions]]:
    """Class decorator that opens an options class: its objects also have the options of every component of these kinds.

    Each component declares its options in a class of its own. An object of the open class is also an instance of that class, and
    the component is built with it. So a component brings its own flags, and no other file changes. A field declared by `choice`
    accepts the names of the components of its kind. A class that inherits from an open class is also open.

    shared: kinds whose components are built from `shared_values` instead. Components with an option of the same name share one
        flag; a name that the open class uses itself is not available to them
    declaring: a class attribute; components of the shared kinds are omitted if their options class lacks it
    """

    def decorated(cls: type[AnyOptions]) -> type[AnyOptions]:
        own = options_class(cls)
        own.opened = classmethod(lambda cls: opened_class(cls, _parts_of(cls, kinds, shared, declaring), _choices(cls)))  # type: ignore
        own.__new__ = lambda given, *_, **__: object.__new__(opened(given))  # type: ignore
        return own

    return decorated


def _parts_of(own: type, kinds: Sequence[str], shared: Sequence[str], declaring: str) -> tuple[type, ...]:
    """The options classes that become the bases of an open class."""
    classes = dict.fromkeys(cls for kind in kinds for cls in options_classes(kind).values())
    found = [cls for cls in classes if dataclasses.fields(cls)]
    for kind in shared:
        taken = frozenset(option.name for cls in (own, *found) for option in dataclasses.fields(cls))
        sharing = [cls for cls in options_classes(kind).values() if not declaring or hasattr(cls, declaring)]
        found.append(shared_class(kind, tuple(sharing), taken))
    return tuple(found)


def shared_values(kind: str, options: object) -> dict[str, Any]:
    """The shared options of a kind that differ from their defaults in an object of an open class, by name."""
    [shared] = (cls for cls in type(options).__mro__ if vars(cls).get("shared_by") == kind)
    given = ((option, getattr(options, option.name)) for option in options_of(shared))
    return {option.name: value for option, value in given if value != option.default}


def options_classes(kind: str) -> dict[str, Any]:
    """The options class of each component of a kind, by name. Imports no component."""
    return {name: options_class_of(kind, name) for name in names(kind)}


def _choices(own: type) -> tuple[tuple[str, Any], ...]:
    """The fields of a class that are declared by `choice`, each with the type of its values."""
    choosing = ((field, *field.metadata["chooses"]) for field in dataclasses.fields(own) if "chooses" in field.metadata)
    return tuple((f.name, Literal[f.default, *also, *choosable(kind, able)]) for f, kind, also, able in choosing)


def choosable(kind: str, able: str = "") -> list[str]:
    """The names of the components of a kind that can be chosen: all except stand-ins (see `selected`).

    able: see `nmt.options.choice`
    """
    return [
        name
        for name, cls in options_classes(kind).items()
        if not hasattr(cls, "stands_for") and (not able or getattr(cls, able, True))
    ]


def selected(kind: str, name: str, options: object) -> Entry:
    """The component of this kind and name, or its active stand-in.

    The options class of a stand-in has `stands_for`, the name of the component that it replaces when it is active (see
    `active_names`). A stand-in cannot be chosen by name.
    options: an object of an open class
    """
    for other, cls in options_classes(kind).items():
        if getattr(cls, "stands_for", None) == name and _is_active(cls, options):
            return find(kind, other)
    return find(kind, name)


def option_names(kind: str) -> list[str]:
    """The names of the options of all components of a kind."""
    return [option.name for cls in options_classes(kind).values() for option in options_of(cls)]


def having(kind: str, option: str) -> list[str]:
    """The names of the components of a kind that have the given option."""
    return [name for name, cls in options_classes(kind).items() if option in (own.name for own in options_of(cls))]


def declared(kind: str, attribute: str) -> list[Any]:
    """The values of a class attribute in all options classes of a kind that define it."""
    classes = options_classes(kind).values()
    return [getattr(cls, attribute) for cls in classes if hasattr(cls, attribute)]


def active_names(kind: str, options: object) -> list[str]:
    """The names of a kind's active components, sorted. Imports none.

    A component is active if one of its options differs from its default in `options`, an object of an open class. If its options
    class has an `is_active` method, that decides instead.
    """
    return [name for name, cls in options_classes(kind).items() if _is_active(cls, options)]


def given_flags(kind: str, name: str, options: object) -> list[str]:
    """The flags of a component whose values differ from their defaults. options: an object of an open class"""
    own = options_of(options_class_of(kind, name))
    return [option.flag for option in own if getattr(options, option.name) != option.default]


def _is_active(cls: Any, options: object) -> bool:
    """Whether the component with this options class is active."""
    if hasattr(cls, "is_active"):
        return bool(cls.is_active(options))
    return any(getattr(options, option.name) != option.default for option in options_of(cls))


def active(kind: str, options: object) -> list[Entry]:
    """The active components of a kind, sorted by `order` and then by name. options: an object of an open class"""
    return _in_order(kind, active_names(kind, options))


def every(kind: str) -> list[Entry]:
    """All components of a kind, sorted by `order` and then by name."""
    return _in_order(kind, names(kind))


def _in_order(kind: str, names: Sequence[str]) -> list[Entry]:
    return sorted((find(kind, name) for name in names), key=lambda entry: (getattr(entry.cls, "order", 0), entry.name))


# Building


def options_within(
    kind: str, name: str, choice: Callable[[Option], str], path: str = "", defaults: Mapping[str, Any] = NO_VALUES
) -> list[Option]:
    """The options of a component. After an option that chooses an inner component come the options of that component.

    choice: returns the name of the component that an option chooses
    path: the key of the component, such as `criterion.decoder`, which precedes the names of its options
    defaults: other defaults for the options, by name
    Raises UserError for a default of an unknown option.
    """
    options = []
    own = options_of(options_class_of(kind, name), path)
    names = [option.name for option in own]
    for key in defaults:
        if key.partition(".")[0] not in names:
            raise UserError(f"{path}: default for an {unknown(f'option of {kind} {name}', key, names)}")
    for option in own:
        options.append(option)
        if option.kind:
            held = option.default
            option.default = defaults.get(option.name, held.name)
            chosen = choice(option)
            values = (held.values if chosen == held.name else {}) | values_below(option.name, defaults)
            options += options_within(option.kind, chosen, choice, option.path_key, values)
        else:
            option.default = defaults.get(option.name, option.default)
    return options


def choice_from(values: Mapping[str, Any] = NO_VALUES) -> Callable[[Option], str]:
    """A `choice` for `options_within`: reads names from values by key, and uses defaults for the rest."""
    given = {key: value.name if isinstance(value, Part) else value for key, value in values.items()}
    return lambda option: str(given.get(option.key, option.default))


def completed(kind: str, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Saved options of a component. Options added since they were saved get defaults that keep the earlier behaviour.

    values: by key below the component, as in a saved file; returned unchanged if the component is unknown
    """
    try:
        options = options_within(kind, name, choice_from(values))
    except UserError:
        return dict(values)
    defaults = {option.key: option.default for option in options if option.default is not REQUIRED}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in defaults.items()} | dict(values)


def choose(kind: str, name: str, values: Mapping[str, Any] = NO_VALUES) -> Part:
    """A component with its options and its inner components, made from text or typed values.

    values: by key below the component, such as `beam_size`, `decoder` or `decoder.beam_size`; other keys are ignored
    Raises UserError for an unknown name or an invalid value.
    """
    cls = options_class_of(kind, name)
    inner = {}
    for option in options_of(cls):
        given = values.get(option.name, option.default)
        if option.kind and (isinstance(given, str) or option.name not in values):
            part_name = given if isinstance(given, str) else given.name
            defaults = option.default.values if part_name == option.default.name else {}
            inner[option.name] = choose(option.kind, part_name, defaults | values_below(option.name, values))
    return Part(kind, name, make(cls, {**values, **inner}))


def values_below(path: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values whose keys start with a path and a dot, by the rest of the key."""
    return {key[len(path) + 1 :]: value for key, value in values.items() if key.startswith(f"{path}.")}


def build(part: Part, *context: Any) -> Any:
    """Build a component. context: the constructor's arguments after the options (see the base.py of the kind)"""
    options = choose(part.kind, part.name, part.values).options if part.options is None else part.options
    entry = find(part.kind, part.name)  # kept in a local variable, where `place_in_plugin` finds it
    return entry.cls(options, *context)


# Plug-ins


def load_plugin(given: str) -> None:
    """Import a plug-in once. given: path to a Python file or to a folder with an __init__.py, or name of a module

    Raises UserError if there is no such plug-in, or if its import fails.
    """
    path = Path(given)
    target = path / "__init__.py" if path.is_dir() else path
    key = str(target.resolve()) if target.exists() else given
    if key in _shelf.plugins:
        return
    try:
        with needing_torch(f"plug-in {given}"):
            if target.exists():
                _import_file(given, path, target)
            else:
                _shelf.plugin_modules.add(given)
                module = importlib.import_module(given)
                if module.__spec__ is not None and module.__spec__.origin is None:  # a namespace package
                    raise UserError(f"plug-in {quoted(given)}: the folder has no __init__.py")
    except UserError as error:
        if place := place_in_plugin(error):
            raise UserError(f"plug-in {place}: {error}") from error
        raise
    except (Exception, SystemExit) as error:
        if not target.exists() and _is_missing(given, error):
            message = f"plug-in {quoted(given)}: no such file, folder with an __init__.py, or module"
            raise UserError(message) from None
        raise UserError(
            f"plug-in {place_in_plugin(error) or given} could not be loaded: {_described(error)}"
        ) from error
    _shelf.plugins[key] = given


def _import_file(given: str, path: Path, target: Path) -> None:
    """Import a plug-in from a file. target: the file; path: the same file, or the folder if the plug-in is a package"""
    name = f"nmt_plugin_{len(_shelf.plugins)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, target)
    if spec is None or spec.loader is None:
        raise UserError(f"plug-in {given}: not a Python file (its name must end with .py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module here
    _shelf.plugin_modules.add(name)
    spec.loader.exec_module(module)
    if target != path:
        _shelf.roots += (Root(name, path),)


def loaded_plugins() -> list[str]:
    """The values of `--plugin`, as given."""
    return list(_shelf.plugins.values())


def _is_missing(given: str, error: BaseException) -> bool:
    """Whether the module `given` itself is missing, not one that it imports."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return given.startswith(".") or "/" in given or (name is not None and f"{given}.".startswith(f"{name}."))


def load_installed() -> None:
    """Import the installed plug-ins, once. If one fails, a warning names it, and its components are skipped.

    A plug-in that is a package may have the layout of nmt. Its components are then imported when they are looked up.
    """
    if _shelf.entry_points_loaded:
        return
    _shelf.entry_points_loaded = True
    for point in entry_points(group="nmt.plugins"):
        parts, presets = set(_shelf.parts), dict(_shelf.presets)
        _shelf.plugin_modules.add(point.module)
        try:
            with needing_torch("it"):
                loaded = point.load()
            if (spec := getattr(loaded, "__spec__", None)) and spec.submodule_search_locations:
                _shelf.roots += tuple(Root(spec.name, Path(folder)) for folder in spec.submodule_search_locations)
        except (Exception, SystemExit) as error:
            kept = {key: entry for key, entry in _shelf.parts.items() if key in parts or entry.place.startswith("nmt.")}
            _shelf.parts, _shelf.presets = kept, presets
            place = place_in_plugin(error) or point.value
            message = f"plug-in {point.name} ({place}) could not be loaded: {_described(error)}"
            _shelf.broken[point.name] = message
            log.warn(f"{message}; the rest of nmt works without it")


def place_in_plugin(error: BaseException) -> str | None:
    """`FILE:LINE` of the plug-in's code that an error comes from; None if no plug-in was involved.

    An error can come from nmt's code, for example if a plug-in returned a wrong type. If no line of the plug-in is in the
    traceback, the place is the class of the plug-in's object that was in use.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    cause = [] if error.__cause__ is None else list(traceback.walk_tb(error.__cause__.__traceback__))
    frames = [*traceback.walk_tb(error.__traceback__), *cause][::-1]
    for frame, line in frames:
        if _is_of_plugin(str(frame.f_globals.get("__name__"))):
            return f"{frame.f_code.co_filename}:{line}"
    entries = {entry.cls: entry for entry in _shelf.parts.values() if _is_of_plugin(entry.place)}
    if not entries or not isinstance(error, Exception):
        return None
    values = [value for frame, _ in frames for value in frame.f_locals.values()]
    values += [value for owner in values if hasattr(owner, "__dict__") for value in list(vars(owner).values())]
    for value in values:  # innermost values first, then values held by objects, such as an engine's decoder
        if entry := entries.get(value.cls if isinstance(value, Entry) else type(value)):
            place, name = place_of_class(entry.cls), getattr(entry.cls, "__name__", entry.name)
            return f"{place} (compare {name} with the {entry.kind} interface in docs/reference/plugins.md)"
    return None


def _is_of_plugin(module: str) -> bool:
    """Whether a module belongs to a plug-in."""
    return any(f"{module}.".startswith(f"{name}.") for name in _shelf.plugin_modules)


def _described(error: BaseException) -> str:
    """An error in a plug-in's code as text, with its place only if that is not in the plug-in but in a module it imports."""
    if isinstance(error, UserError):
        return str(error)
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    file, line = next(place for place in reversed(frames) if not place[0].startswith("<frozen"))
    is_elsewhere = not isinstance(error, SyntaxError) and place_in_plugin(error) not in (None, f"{file}:{line}")
    where = f" ({file}:{line})" if is_elsewhere else ""
    return f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}{where}"


def _readable(module: str) -> str:
    """A module's name, or its file if --plugin loaded it from a file."""
    return getattr(sys.modules.get(module), "__file__", None) or module if module.startswith("nmt_plugin_") else module


def _broken_plugins() -> str:
    """The errors of installed plug-ins that could not be loaded, as the end of a message about an unknown name."""
    return "".join(f"; {message}" for message in _shelf.broken.values())
