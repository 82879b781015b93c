"""Options classes, and the flags, TOML keys and saved keys made from them, all of one spelling.

An options class is a class decorated by `options_class` whose fields are written `name: type = opt(default, "help")`, or
`name: Part = part(kind, default, "help")` for a component that is built inside another. Text of flags and values of TOML files
become typed values in `convert`. The key of an option of an inner component is a path with dots: `decoder.temperature`.
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
AUTO: Final = "auto"  # the value of an option that the program chooses
COMMAND_LINE: Final = "the command line"  # as the origin of a value
MAX_PROCESSES: Final = 1024  # of one command on one machine; more are a slip of the keyboard
MAX_SETTINGS_BYTES: Final = 1 << 20  # of a TOML file
LONG_KEY: Final = re.compile(rb"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){100}")  # which TOML's parser takes minutes for
MAX_THREADS: Final = 1024
MAX_LAYER_SIZE: Final = 1 << 20  # of a width, of layers, of experts; the largest published are a tenth of it
NUMBER_WITH_DOT: Final = re.compile(r"(-?)(\d*)\.(\d*)((?:[eE][+-]?\d+)?)")
MAX_INT: Final = (1 << 63) - 1  # numpy and torch take no larger one
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
    """A field of an options class.

    default: its value, or REQUIRED
    help: what it sets, with its unit: at most 15 words a sentence, and one line where `common`
    group: the heading of a command's help that lists it; an option of a component without one is listed by `--help KIND`
    common: whether the short help, `-h`, lists it
    metavar: the word for its value in the help, `RUN`; by default the last word of its name, or N and X for numbers
    aliases: flags that other toolkits use for it, without dashes: "lenpen"
    minimum, maximum: bounds of a number, themselves allowed; above, below: bounds that are not. None and text are not
        numbers and pass; each item of a tuple is checked; a number with a bound has to be finite.
    is_size: whether it decides how large a network is
    must_stay: of `nmt train`: whether a run that is resumed must keep it, because it decides the run's mathematics
    needs, excludes: names of options that it has no effect without, and that it cannot be combined with
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
    """A field for a size of a network."""
    return opt(default, help, group=group, minimum=minimum, maximum=MAX_LAYER_SIZE, is_size=True)


def probability_opt(default: float, help: str, group: str = "") -> Any:
    """A field for a probability: from 0 to less than 1."""
    return opt(default, help, group=group, minimum=0, below=1)


@dataclass(frozen=True)
class Part:
    """A component by kind and name, with its options, ready for `registry.build`.

    options: None for the component's defaults
    values: with options None, those that replace the component's defaults, by key
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
    """A field of an open options class that names a component: `ffn: str = choice("ffn", "dense", "which network")`.

    The options of all components of the kind stand next to it (see `registry.open_options_class`).
    kind, default, help, aliases, group, common: see `part` and `opt`
    also: values that name no component, such as "auto"
    able: leaves out the components whose options class has this class attribute, and has it False: `reads = False`
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
    """A field of an options class that holds a component: `decoder: Part = part("decoder", "sampling", "search for samples")`.

    kind: of the component, as `register` has it
    default: the name of the component that is taken when none is given
    help, aliases, group: see `opt`
    values: defaults of options of that component, by name, in place of its own: `{"n_best": 4}`
    """
    metadata = {"help": help, "group": group, "aliases": tuple(aliases), "kind": kind}
    return dataclasses.field(default=Part(kind, default, values=values or {}), metadata=metadata)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def options_class(cls: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass with keyword arguments, whose bounds and relations are checked when it is made.

    `__post_init__`, if the class has one, checks what they cannot say, and raises ValueError.
    """
    own_or_inherited = getattr(cls, "__post_init__", None)

    def post_init(self: Any) -> None:
        if type(self).__dict__.get("__post_init__") is post_init:  # not a call by super()
            options = options_of(type(self))
            for option in options:
                option.check(getattr(self, option.name))
            check_relations(self, options)
        if own_or_inherited is not None:
            own_or_inherited(self)

    cls.__post_init__ = post_init  # type: ignore[attr-defined]
    return dataclass(frozen=True, kw_only=True)(cls)


def check_relations(values: object, options: "Sequence[Option]") -> None:
    """Raise ValueError for an option that is given without one that it needs, or together with one that it excludes.

    An option is given if it is not at its default. Options that only other commands have count neither way.
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
    """The options of a component that has none."""


@dataclass
class Option:
    """One option of a command or of a component.

    bounds: see BOUND_CHECKS
    group, common, metavar, is_size, must_stay, needs, excludes: see `opt`
    kind: of the component that the option chooses, if it chooses one with options of its own
    chooses: kind, also and able of `choice`
    path: where the component stands that has the option, `criterion.decoder`; empty for a command's own
    key: its key in settings and saved files; its flag has the same spelling
    words: how many words without a flag may give its value: 0, 1, or None for all that remain
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
        """Whether its value may be given without its flag."""
        return self.words != 0

    @property
    def label(self) -> str:
        """Its name in messages: a flag, or `NAME` where the value may be given without one."""
        return self.name.upper() if self.positional else self.flag

    @property
    def relations(self) -> str:
        """What it needs and excludes, as the end of its help."""
        relations = {"needs": self.needs, "not with": self.excludes}
        return "".join(f"; {words} {', '.join(map(flag_of, names))}" for words, names in relations.items() if names)

    def spellings(self, path: str = "") -> dict[str, bool]:
        """The flags that set it below a path, its own first; those whose value is True set it to no."""
        before = f"--{path}." if path else "--"
        flags = [f"{before}{name}".replace("_", "-") for name in (self.name, *self.aliases) if len(name) > 1]
        letters = [] if path else [f"-{name}" for name in (self.name, *self.aliases) if len(name) == 1]
        negated = {f"--no-{flags[0][2:]}": True} if self.type is bool else {}
        return dict.fromkeys([*flags, *letters], False) | negated

    @property
    def count(self) -> int | None:
        """The number of values that the flag takes; None for any number of them, as `--train A B`."""
        if get_origin(self.type) is not tuple:
            return 1
        return None if Ellipsis in get_args(self.type) else len(get_args(self.type))

    @property
    def type_name(self) -> str:
        return "NAME" if self.kind else _type_name(self.type)

    def convert(self, value: Any, origin: str | None = None) -> Any:
        """A value, or its text, as the option's type and within its bounds.

        Raises UserError that names the option, the value and where it was set.
        """
        if self.kind and isinstance(value, str | Part):
            return value
        where = f" (set by {origin})" if origin and origin != COMMAND_LINE else ""
        try:
            converted = convert(value, self.type)
        except ValueError:
            raise UserError(f"{self.label} '{quoted(value)}': must be {self.type_name}{where}") from None
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
                digits = str(number) if abs(number) < MAX_INT**2 else quoted(hex(number))  # str() refuses 4,300 digits
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
    """The options of a class: those of `positional` in its order, then the others in the order of the fields.

    path: where a component of that class stands: `criterion.decoder`
    positional: the names of options whose values may be given without a flag; `NAME...` takes all words that remain
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
    """The class with the options of components too, if it is open to them (see `registry.open_options_class`), or itself."""
    is_closed = "is_opened" in cls.__dict__ or not hasattr(cls, "opened")
    return cls if is_closed else cls.opened()  # type: ignore[no-any-return]


def convert(value: Any, kind: Any) -> Any:
    """The text of a flag or a value of a TOML or JSON file as the type of its option; raises ValueError.

    Texts for a tuple of numbers or of names are divided at commas, `0.9,0.98` or `(0.9, 0.98)`; texts for one of texts
    never are.
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
    """The text of a number such as `.2` or `1.` as msgspec reads it, `0.2` or `1.0`; any other value as it is."""
    found = NUMBER_WITH_DOT.fullmatch(value) if isinstance(value, str) else None
    if found is None or not (found[2] or found[3]):
        return value
    return f"{found[1]}{found[2] or 0}.{found[3] or 0}{found[4]}"


def flag_of(key: str) -> str:
    """The flag of an option: `beam_size` has `--beam-size`."""
    return f"--{key}".replace("_", "-")


def names_of(texts: Iterable[str]) -> list[str]:
    """The names in texts such as `bleu,chrf`, each once."""
    return list(dict.fromkeys(name for text in texts for name in text.replace(",", " ").split()))


def _items(text: str) -> list[str]:
    """The items of a text such as `0.9,0.98`, and of Python's tuples and lists."""
    return [item.strip() for item in text.strip("()[]").split(",")]


def make(cls: type[T], values: Mapping[str, Any]) -> T:
    """An options object from text or typed values; keys of other classes are ignored.

    Raises UserError that names the option and the value.
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
    """The values of an options object by key, ready for JSON; a component within it is its name, with its options below it."""
    values: dict[str, Any] = {}
    for key, value in vars(options).items():
        if isinstance(value, Part):
            inner = value.values if value.options is None else as_dict(value.options)
            values |= {key: value.name} | {f"{key}.{name}": setting for name, setting in inner.items()}
        else:
            values[key] = list(value) if isinstance(value, tuple) else value
    return values


def flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a TOML file by key: `-` is `_`; `[a.b]` puts `a.b.` before its keys, and its `name` is the value of a.b.

    Raises UserError for a value that is given twice.
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
    """The settings of a TOML file by key, see `flat`. Raises UserError where it cannot be read.

    Bytes that are not UTF-8 are kept as Python keeps those of file names, which alone may have such.
    """
    import tomllib

    try:
        with naming(path), path.open("rb") as file:
            content = file.read(MAX_SETTINGS_BYTES + 1)
        if len(content) > MAX_SETTINGS_BYTES:
            raise ValueError(f"longer than {MAX_SETTINGS_BYTES >> 20} MiB")
        if LONG_KEY.search(content):
            raise ValueError("a key of more than 100 parts")
        return flat(tomllib.loads(content.decode(errors="surrogateescape")))
    except FileNotFoundError:
        raise UserError(f"{quoted(path)}: no such settings file") from None
    except (IsADirectoryError, NotADirectoryError) as error:
        raise UserError(f"{quoted(path)}: cannot be read as a settings file: {error.strerror}") from None
    except (ValueError, RecursionError, UserError) as error:  # of a number with too many digits, of tables in tables
        is_part = "Cannot overwrite a value" in str(error)
        hint = ' (a component with options is a table: [decoder] with name = "beam")' if is_part else ""
        raise UserError(f"{quoted(path)}: not valid TOML: {error}{hint}") from None


def toml_line(key: str, value: Any) -> str:
    """`key = value` as TOML, the key in quotes where it has dots."""
    return f"{to_toml(key) if '.' in key else key} = {to_toml(value)}"


def to_toml(value: Any) -> str:
    """A value as TOML writes it, which is as JSON does but for None, the character DEL and floats that are not finite.

    A date is a text.
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_toml, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return '"none"' if value is None else json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")
