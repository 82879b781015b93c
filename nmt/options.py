"""Options classes. Flags, TOML keys and saved keys are made from them, with the same spelling.

An options class is decorated by `options_class`. Its fields are declared as `name: type = opt(default, "help")`, or as
`name: Part = part(kind, default, "help")` for a component inside another component. `convert` turns the text of flags and the
values of TOML files into typed values. The key of an inner component's option is a path with dots: `decoder.temperature`.
"""

import dataclasses
import json
import math
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

import msgspec

from nmt.errors import UserError, naming, quoted

T = TypeVar("T")
REQUIRED: Any = dataclasses.MISSING
AUTO: Final = "auto"  # with this value, an option leaves the choice to nmt
WANTED: Final = {  # values in words, by the name of their type
    "INT": "a whole number",
    "FLOAT": "a number",
    "TEXT": "a text",
    "INT ...": "whole numbers",
    "FLOAT ...": "numbers",
    "TEXT ...": "texts",
    "FLOAT FLOAT": "two numbers",
}
COMMAND_LINE: Final = "the command line"  # where a value was set, for messages
MAX_PROCESSES: Final = 1024  # maximum number of processes per command and machine; a higher number is a typo
MAX_SETTINGS_BYTES: Final = 1 << 20  # maximum size of a TOML file
LONG_KEY: Final = re.compile(rb"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){100}")  # the TOML parser would take minutes
MAX_THREADS: Final = 1024
MAX_LAYER_SIZE: Final = 1 << 20  # limit on widths, layers and experts; published models reach a tenth of it
NUMBER_WITH_DOT: Final = re.compile(r"(-?)(\d*)\.(\d*)((?:[eE][+-]?\d+)?)")
MAX_INT: Final = (1 << 63) - 1  # the largest integer of numpy and torch
BOUND_CHECKS: Final = {"at least": operator.ge, "above": operator.gt, "at most": operator.le, "below": operator.lt}


def opt(
    default: Any,
    help: str,
    *,
    group: str = "",
    common: bool = False,
    metavar: str = "",
    aliases: Sequence[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    is_size: bool = False,
    must_stay: bool = False,
    needs: Sequence[str] = (),
    excludes: Sequence[str] = (),
) -> Any:
    """Declare a field of an options class.

    default: its value, or REQUIRED
    help: what it sets, with its unit; at most 15 words per sentence, and one line if it is `common`
    group: its heading in the help of a command; component options without one appear only in `--help KIND`
    common: whether the short help, `-h`, lists it
    metavar: the placeholder for its value in the help, such as RUN; by default the last word of its name, or N or X for a number
    aliases: other names of the flag, without dashes, as used by other toolkits: "lenpen"
    minimum, maximum: inclusive bounds of a number; above, below: exclusive bounds. Each item of a tuple is checked. None
        and text always pass. A number with a bound must be finite.
    is_size: whether it determines the size of a network
    must_stay: whether a resumed run of `nmt train` must keep the value, because it affects the result
    needs: names of options without which it has no effect; excludes: names of options that it cannot be combined with
    """
    given = {"at least": minimum, "above": above, "at most": maximum, "below": below}
    bounds = {words: bound for words, bound in given.items() if bound is not None}
    metadata = {"help": help, "group": group, "common": common, "metavar": metavar, "aliases": tuple(aliases)}
    metadata |= {
        "bounds": bounds,
        "is_size": is_size,
        "must_stay": must_stay,
        "needs": tuple(needs),
        "excludes": tuple(excludes),
    }
    return dataclasses.field(default=default, metadata=metadata)


def size_opt(default: int | None, help: str, minimum: int = 1, group: str = "") -> Any:
    """Declare an option for a size of a network, such as a width."""
    return opt(default, help, group=group, minimum=minimum, maximum=MAX_LAYER_SIZE, is_size=True)


def probability_opt(default: float, help: str, group: str = "") -> Any:
    """Declare an option for a probability, at least 0 and below 1."""
    return opt(default, help, group=group, minimum=0, below=1)


@dataclass(frozen=True)
class Part:
    """A component by kind and name, with its options, ready for `registry.build`.

    options: None for the component's defaults
    values: if options is None, the values that replace the component's defaults, by key
    """

    kind: str
    name: str
    options: Any = None
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)


def choice(
    kind: str,
    default: str,
    help: str,
    aliases: Sequence[str] = (),
    also: Sequence[str] = (),
    able: str = "",
    group: str = "",
    common: bool = False,
) -> Any:
    """Declare a field that names a component, in an open options class: `ffn: str = choice("ffn", "dense", "which network")`.

    The class also has the options of all components of that kind (see `registry.open_options_class`).
    kind, default, help, aliases, group, common: see `part` and `opt`
    also: further values that are not names of components, such as "auto"
    able: name of a class attribute; components whose options class sets it to False cannot be chosen
    """
    metadata = {"help": help, "group": group, "common": common, "aliases": tuple(aliases)}
    metadata |= {"chooses": (kind, tuple(also), able)}
    return dataclasses.field(default=default, metadata=metadata)


def part(
    kind: str,
    default: str,
    help: str,
    aliases: Sequence[str] = (),
    values: Mapping[str, Any] | None = None,
    group: str = "",
) -> Any:
    """Declare a field that holds a component: `decoder: Part = part("decoder", "sampling", "search for samples")`.

    kind: the kind of the component, as in `register`
    default: the name of the default component
    help, aliases, group: see `opt`
    values: defaults that replace those of the component, by option name: `{"n_best": 4}`
    """
    metadata = {"help": help, "group": group, "aliases": tuple(aliases), "kind": kind}
    return dataclasses.field(default=Part(kind, default, values=values or {}), metadata=metadata)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def options_class(cls: type[T]) -> type[T]:
    """Class decorator: make a frozen dataclass that checks bounds and relations when an object is created.

    A `__post_init__` method can make further checks. It raises ValueError.
    """
    own_or_inherited = getattr(cls, "__post_init__", None)

    def post_init(self: Any) -> None:
        if type(self).__dict__.get("__post_init__") is post_init:  # false if a subclass calls this through super()
            options = options_of(type(self))
            for option in options:
                option.check(getattr(self, option.name))
            check_relations(self, options)
        if own_or_inherited is not None:
            own_or_inherited(self)

    cls.__post_init__ = post_init  # type: ignore[attr-defined]
    return dataclass(frozen=True, kw_only=True)(cls)


def check_relations(values: object, options: "Sequence[Option]") -> None:
    """Raise ValueError if an option lacks another that it needs, or is combined with one that it excludes.

    An option counts as given if its value is not the default. Names of options that the class does not have are ignored.
    """
    known = {option.name: option for option in options}
    given = {name: option for name, option in known.items() if getattr(values, name) != option.default}
    for option in given.values():
        for name in option.needs:
            if name in known and name not in given:
                raise ValueError(f"{option.label} needs {known[name].label} (add it, or drop {option.label})")
        for name in option.excludes:
            if name in given:
                raise ValueError(f"{option.label} and {given[name].label} cannot be combined (drop one of them)")


@options_class
class NoOptions:
    """The options of a component without options."""


@dataclass
class Option:
    """One option of a command or of a component.

    bounds: see BOUND_CHECKS
    group, common, metavar, is_size, must_stay, needs, excludes: see `opt`
    kind: the kind of component that the option chooses; empty if it chooses none
    chooses: the arguments `kind`, `also` and `able` of `choice`
    path: the path of the component that the option belongs to, such as `criterion.decoder`; empty for a command's options
    key: its key in settings and saved files; its flag has the same spelling
    words: the number of positional arguments that it accepts: 0, 1, or None for all that remain
    """

    name: str
    type: Any
    default: Any
    help: str
    aliases: tuple[str, ...] = ()
    bounds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    is_size: bool = False
    must_stay: bool = False
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    group: str = ""
    common: bool = False
    metavar: str = ""
    kind: str = ""
    chooses: tuple[str, tuple[str, ...], str] | None = None
    path: str = ""
    key: str = ""
    words: int | None = 0

    def __post_init__(self) -> None:
        self.key = self.key or self.path_key

    @property
    def path_key(self) -> str:
        """The key with the whole path: `criterion.decoder.temperature`."""
        return f"{self.path}.{self.name}" if self.path else self.name

    @property
    def flag(self) -> str:
        return flag_of(self.key)

    @property
    def positional(self) -> bool:
        """Whether the option's value may be given without its flag."""
        return self.words != 0

    @property
    def label(self) -> str:
        """The option's name in messages: the flag, or `NAME` if the value may be given without a flag."""
        return self.name.upper() if self.positional else self.flag

    @property
    def relations(self) -> str:
        """The options that this one needs and excludes, as the last part of its help."""
        relations = {"needs": self.needs, "not with": self.excludes}
        return "".join(f"; {words} {', '.join(map(flag_of, names))}" for words, names in relations.items() if names)

    def spellings(self, path: str = "") -> dict[str, bool]:
        """The flags that set the option, the main one first. True marks `--no-` flags. path: see `Option.path`"""
        before = f"--{path}." if path else "--"
        flags = [f"{before}{name}".replace("_", "-") for name in (self.name, *self.aliases) if len(name) > 1]
        letters = [] if path else [f"-{name}" for name in (self.name, *self.aliases) if len(name) == 1]
        negated = {f"--no-{flags[0][2:]}": True} if self.type is bool else {}
        return dict.fromkeys([*flags, *letters], False) | negated

    @property
    def count(self) -> int | None:
        """The number of values that the flag takes; None if it takes any number, as in `--train A B`."""
        if get_origin(self.type) is not tuple:
            return 1
        return None if Ellipsis in get_args(self.type) else len(get_args(self.type))

    @property
    def type_name(self) -> str:
        return "NAME" if self.kind else _type_name(self.type)

    @property
    def wanted(self) -> str:
        """The values that the option accepts, in words: `a whole number or auto`."""
        *names, last = (WANTED.get(name, name) for name in self.type_name.split("|"))
        return f"{', '.join(names)} or {last}" if names else last

    def convert(self, value: Any, origin: str | None = None) -> Any:
        """Convert a value, or its text, to the option's type and check its bounds.

        Raises a UserError that names the option, the value and the place that set it.
        """
        if self.kind and isinstance(value, str | Part):
            return value
        where = f" (set by {origin})" if origin and origin != COMMAND_LINE else ""
        try:
            converted = convert(value, self.type)
        except ValueError:
            raise UserError(f"{self.label} '{quoted(value)}': must be {self.wanted}{where}") from None
        try:
            self.check(converted)
        except ValueError as error:
            raise UserError(f"{error}{where}") from None
        return converted

    def check(self, value: object) -> None:
        """Raise ValueError for a value outside the bounds."""
        items = value if isinstance(value, tuple) else (value,)
        numbers = [item for item in items if isinstance(item, int | float) and not isinstance(item, bool)]
        for number in numbers:
            if isinstance(number, int) and abs(number) > MAX_INT:
                digits = (
                    str(number) if abs(number) < MAX_INT**2 else quoted(hex(number))
                )  # str() refuses more than 4,300 digits
                raise ValueError(f"{self.label} {digits}: must be from {-MAX_INT:,} to {MAX_INT:,}")
        allowed = (BOUND_CHECKS[words](n, bound) for n in numbers for words, bound in self.bounds.items())
        if self.bounds and not (all(map(math.isfinite, numbers)) and all(allowed)):
            wanted = " and ".join(f"{words} {bound:,}" for words, bound in self.bounds.items())
            alternatives = "".join(f", or {name}" for name in _type_name(self.type).split("|") if name.islower())
            raise ValueError(f"{self.label} {' '.join(map(str, items))}: must be {wanted}{alternatives}")


def _type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(str(value) for value in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return "|".join(_type_name(item) for item in get_args(kind))
    if get_origin(kind) is tuple:
        return " ".join("..." if item is Ellipsis else _type_name(item) for item in get_args(kind))
    if kind is NoneType:
        return "none"
    return {"str": "TEXT", "int": "INT", "float": "FLOAT", "bool": "BOOL"}.get(str(kind.__name__), str(kind.__name__))


def options_of(cls: type, path: str = "", positional: Sequence[str] = ()) -> list[Option]:
    """The options of a class: first those in `positional`, in that order, then the others in the order of the fields.

    path: the path of the component, such as `criterion.decoder`
    positional: names of options whose values may be given without a flag; `NAME...` takes all remaining arguments
    Raises UserError for a field that is not declared by `opt`, `choice` or `part`.
    """
    cls = opened(cls)
    hints, options = get_type_hints(cls), list[Option]()
    words = {text.removesuffix("..."): None if text.endswith("...") else 1 for text in positional}
    for field in dataclasses.fields(cls):
        name, metadata = field.name, field.metadata
        if "help" not in metadata:
            raise UserError(f"{cls.__name__}.{name}: must be declared by opt(), choice() or part()")
        options.append(Option(name, hints[name], field.default, **metadata, path=path, words=words.get(name, 0)))
    order = list(words)
    return sorted(options, key=lambda option: order.index(option.name) if option.positional else len(order))


def opened(cls: Any) -> type:
    """The class with its components' options if it is open (see `registry.open_options_class`), otherwise the class itself."""
    is_closed = "is_opened" in cls.__dict__ or not hasattr(cls, "opened")
    return cls if is_closed else cls.opened()  # type: ignore[no-any-return]


def convert(value: Any, kind: Any) -> Any:
    """Convert the text of a flag, or a value from a TOML or JSON file, to the type of its option.

    Text for a tuple of numbers or choices is split at commas: `0.9,0.98` or `(0.9, 0.98)`. Text for a tuple of texts is
    not split. Raises ValueError.
    """
    if isinstance(value, str) and value.lower() == "none" and NoneType in get_args(kind):
        return None
    if get_origin(kind) is tuple:
        value = [value] if isinstance(value, str) else value
        if isinstance(value, Sequence) and str not in get_args(kind):
            value = [word for item in value for word in (_items(item) if isinstance(item, str) else [item])]
        if isinstance(value, Sequence) and float in get_args(kind):
            value = [_number(item) for item in value]
    elif float in (kind, *get_args(kind)):
        value = _number(value)
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _number(value: Any) -> Any:
    """Rewrite a number such as `.2` or `1.` as `0.2` or `1.0`, which msgspec can read. Return any other value unchanged."""
    found = NUMBER_WITH_DOT.fullmatch(value) if isinstance(value, str) else None
    if found is None or not (found[2] or found[3]):
        return value
    return f"{found[1]}{found[2] or 0}.{found[3] or 0}{found[4]}"


def flag_of(key: str) -> str:
    """The flag of an option: `--beam-size` for `beam_size`."""
    return f"--{key}".replace("_", "-")


def names_of(texts: Iterable[str]) -> list[str]:
    """The distinct names in texts such as `bleu,chrf`."""
    return list(dict.fromkeys(name for text in texts for name in text.replace(",", " ").split()))


def _items(text: str) -> list[str]:
    """The items of a text such as `0.9,0.98`; brackets as in Python's tuples and lists are allowed."""
    return [item.strip() for item in text.strip("()[]").split(",")]


def make(cls: type[T], values: Mapping[str, Any]) -> T:
    """Make an options object from text or typed values. Keys that the class does not have are ignored.

    Raises a UserError that names the option and the value.
    """
    own: dict[str, Any] = {}
    for option in options_of(cls):
        if option.name in values:
            value = option.convert(values[option.name])
            own[option.name] = Part(option.kind, value) if option.kind and isinstance(value, str) else value
        elif option.default is REQUIRED:
            raise UserError(f"{option.label} is missing: {option.help}")
    try:
        return cls(**own)
    except ValueError as error:
        raise UserError(str(error)) from None


def as_dict(options: Any) -> dict[str, Any]:
    """The values of an options object by key, ready for JSON. A component is saved as its name, and its options follow."""
    values: dict[str, Any] = {}
    for key, value in vars(options).items():
        if isinstance(value, Part):
            inner = value.values if value.options is None else as_dict(value.options)
            values |= {key: value.name} | {f"{key}.{name}": setting for name, setting in inner.items()}
        else:
            values[key] = list(value) if isinstance(value, tuple) else value
    return values


def flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a TOML file by key, with `_` for `-`. A table `[a.b]` prefixes its keys with `a.b.`; its `name` sets `a.b`.

    Raises UserError if a value is set twice.
    """
    values: dict[str, Any] = {}
    for key, value in table.items():
        key = key.replace("-", "_")
        inner = flat(value) if isinstance(value, Mapping) else {"name": value}
        for name, item in inner.items():
            path = key if name == "name" else f"{key}.{name}"
            if path in values:
                raise UserError(f"'{path}' is set twice")
            values[path] = item
    return values


def read_toml(path: Path) -> dict[str, Any]:
    """Read the settings of a TOML file by key (see `flat`). Raises UserError if it cannot be read.

    Invalid UTF-8 is kept with surrogateescape, because file names may contain such bytes.
    """
    import tomllib

    try:
        with naming(path), path.open("rb") as file:
            content = file.read(MAX_SETTINGS_BYTES + 1)
        if len(content) > MAX_SETTINGS_BYTES:
            raise ValueError(f"longer than {MAX_SETTINGS_BYTES >> 20} MiB")
        if LONG_KEY.search(content):
            raise ValueError("a key has more than 100 parts")
        return flat(tomllib.loads(content.decode(errors="surrogateescape")))
    except FileNotFoundError:
        raise UserError(f"{quoted(path)}: no such settings file") from None
    except (IsADirectoryError, NotADirectoryError) as error:
        raise UserError(f"{quoted(path)}: cannot be read as a settings file: {error.strerror}") from None
    except (ValueError, RecursionError, UserError) as error:  # for example, too many digits or too deeply nested tables
        is_part = "Cannot overwrite a value" in str(error)
        hint = ' (write a component with options as a table: [decoder] with name = "beam")' if is_part else ""
        raise UserError(f"{quoted(path)}: not valid TOML: {error}{hint}") from None


def toml_line(key: str, value: Any) -> str:
    """`key = value` as TOML. A key with dots is quoted."""
    return f"{to_toml(key) if '.' in key else key} = {to_toml(value)}"


def to_toml(value: Any) -> str:
    """A value as TOML. It is written as in JSON, except for None, the character DEL and floats that are not finite.

    A date becomes a string.
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_toml, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return '"none"' if value is None else json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")
