"""Options classes and what is made from them: flags, TOML keys and saved keys, all of one spelling.

An options class is a frozen dataclass whose fields are written `name: type = opt(default, "help")`. The text of a flag
or a TOML file is turned into the field's type here, in one place; a key that no class owns is an error.
"""

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

import msgspec

from nmt.errors import UserError, quoted, unknown

T = TypeVar("T")
REQUIRED: Any = dataclasses.MISSING


def opt(
    default: Any,
    help: str,
    *,
    aliases: Sequence[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """A field of an options class.

    default: its value, or REQUIRED
    help: one sentence with unit and source
    aliases: flags that other toolkits use for it, without dashes: "lenpen"
    minimum, maximum: bounds of a number, themselves allowed; above, below: bounds that are not. None and text are not
        numbers and pass; each item of a tuple is checked; a number with a bound has to be finite.
    """
    bounds = Bounds(minimum, maximum, above, below)
    return dataclasses.field(default=default, metadata={"help": help, "aliases": tuple(aliases), "bounds": bounds})


@dataclass(frozen=True)
class Bounds:
    """The range of an option's number; see `opt`."""

    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None

    def __str__(self) -> str:
        words = {"at least": self.minimum, "above": self.above, "at most": self.maximum, "below": self.below}
        return " and ".join(f"{word} {bound:,}" for word, bound in words.items() if bound is not None)

    def allow(self, value: object) -> bool:
        """Whether a value is within the bounds."""
        if isinstance(value, tuple):
            return all(map(self.allow, value))
        if self == Bounds() or isinstance(value, bool) or not isinstance(value, int | float):
            return True
        return (
            math.isfinite(value)
            and (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )


def check_bounds(options: Any) -> None:
    """Raise ValueError for the first option of an options object that is outside its bounds."""
    for option in options_of(type(options)):
        value = getattr(options, option.name)
        if not option.bounds.allow(value):
            others = [name for name in _type_name(option.type).split("|") if name.islower()]
            alternatives = "".join(f", or {name}" for name in others)
            shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
            raise ValueError(f"{option.flag} {shown}: must be {option.bounds}{alternatives}")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def options_class(cls: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass with keyword arguments whose bounds are checked when an object is made.

    `__post_init__`, if the class has one, checks what concerns several options, and raises ValueError.
    """
    own = cls.__dict__.get("__post_init__")

    def post_init(self: Any) -> None:
        if type(self).__dict__.get("__post_init__") is post_init:  # not a call by super()
            check_bounds(self)
        if own is not None:
            own(self)
        elif inherited is not None:
            inherited(self)

    inherited = getattr(cls, "__post_init__", None) if own is None else None
    cls.__post_init__ = post_init  # type: ignore[attr-defined]
    return dataclass(frozen=True, kw_only=True)(cls)


@dataclass(frozen=True)
class Option:
    """One field of an options class, as flags and help need it."""

    name: str
    type: Any
    default: Any
    help: str
    aliases: tuple[str, ...]
    bounds: Bounds = Bounds()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def spellings(self) -> list[str]:
        """All flags that set it, its own first and that which says no last."""
        aliases = [f"-{alias}" if len(alias) == 1 else f"--{alias}" for alias in self.aliases]
        return [self.flag, *aliases, *([f"--no-{self.flag[2:]}"] if self.type is bool else [])]

    @property
    def count(self) -> int | None:
        """How many values the flag takes; None is any number of them, as `--train A B`."""
        if get_origin(self.type) is not tuple:
            return 1
        return None if Ellipsis in get_args(self.type) else len(get_args(self.type))

    @property
    def type_name(self) -> str:
        return _type_name(self.type)


def _type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(str(value) for value in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return "|".join(_type_name(part) for part in get_args(kind))
    if get_origin(kind) is tuple:
        return " ".join("..." if part is Ellipsis else _type_name(part) for part in get_args(kind))
    if kind is NoneType:
        return "none"
    return {"str": "TEXT", "int": "INT", "float": "FLOAT", "bool": "BOOL"}.get(str(kind.__name__), str(kind.__name__))


def options_of(cls: type) -> list[Option]:
    """The options of a class, in the order they are written."""
    hints = get_type_hints(cls)
    return [
        Option(
            field.name,
            hints[field.name],
            field.default,
            field.metadata["help"],
            field.metadata["aliases"],
            field.metadata["bounds"],
        )
        for field in dataclasses.fields(cls)
    ]


def convert(value: Any, kind: Any) -> Any:
    """The text of a flag or a value of a TOML or JSON file as the type of its option; raises ValueError.

    Texts for a tuple of numbers or of names are divided at commas, `0.9,0.98`; texts for one of texts never are.
    """
    if isinstance(value, str) and value.lower() == "none" and NoneType in get_args(kind):
        return None
    if get_origin(kind) is tuple:
        value = [value] if isinstance(value, str) else value
        if isinstance(value, Sequence) and str not in get_args(kind):
            value = [word for part in value for word in (part.split(",") if isinstance(part, str) else [part])]
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def make(
    cls: type[T],
    values: Mapping[str, Any],
    origins: Mapping[str, str] | None = None,
    positional: Collection[str] = (),
) -> T:
    """An options object from text or typed values; keys that are not its own are left to others.

    positional: names of options that are given without a flag
    Raises UserError that names the key, the value, and where it was set.
    """
    found: dict[str, Any] = {}
    for option in options_of(cls):
        spelling = option.name.upper() if option.name in positional else option.flag
        if option.name in values:
            found[option.name] = typed(option, values[option.name], (origins or {}).get(option.name), spelling)
        elif option.default is REQUIRED:
            raise UserError(f"{spelling} is missing ({option.help})")
    try:
        options = cls(**found)
        check_bounds(options)  # also of a plain dataclass
        return options
    except ValueError as error:
        raise UserError(str(error)) from None


def typed(option: Option, value: Any, origin: str | None = None, spelling: str | None = None) -> Any:
    """A value, or its text, as the type of its option; UserError names the option, the value and where it was set."""
    try:
        return convert(value, option.type)
    except ValueError:
        where = f" (set by {origin})" if origin else ""
        told = f"{spelling or option.flag} cannot be '{quoted(value)}'{where}"
        raise UserError(f"{told}; wanted {option.type_name}") from None


def as_dict(options: Any) -> dict[str, Any]:
    """The values of an options object, ready for JSON."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(options).items()}


@dataclass
class Settings:
    """Values by key, each with the place that set it; later layers win: preset < --config < flags."""

    values: dict[str, Any]
    origins: dict[str, str]

    @classmethod
    def empty(cls) -> "Settings":
        return cls({}, {})

    def overlay(self, values: Mapping[str, Any], origin: str) -> None:
        self.values.update(values)
        self.origins.update(dict.fromkeys(values, origin))

    def drop(self, keys: Iterable[str], origin: str) -> list[str]:
        """Take out those of the keys whose value was set by origin; returns them."""
        dropped = [key for key in keys if self.origins.get(key) == origin]
        for key in dropped:
            del self.values[key], self.origins[key]
        return dropped

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """Raises UserError for the first key that nobody owns, with the nearest known key."""
        names = set(known)
        for key, origin in self.origins.items():
            if key not in names:
                raise UserError(f"{origin}: {unknown('setting', key, names)}")


def read_toml(path: Path) -> dict[str, Any]:
    """The settings of a TOML file: flat keys, `-` and `_` alike."""
    import tomllib

    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except FileNotFoundError:
        raise UserError(f"{quoted(path)}: no such settings file") from None
    except (IsADirectoryError, NotADirectoryError) as error:
        raise UserError(f"{quoted(path)}: no settings file: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{quoted(path)}: not valid TOML: {error}") from None
    for key, value in table.items():
        if isinstance(value, dict):
            raise UserError(
                f"{quoted(path)}: [{quoted(key)}] is a table; settings are flat keys such as `dropout = 0.1`"
            )
    return {key.replace("-", "_"): value for key, value in table.items()}


def to_toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return '"none"'
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(to_toml(part) for part in value) + "]"
    return repr(value)
