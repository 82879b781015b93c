"""The options of a command and of its chosen components, and their values from presets, settings files and flags."""

from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Final, NamedTuple

from nmt import registry
from nmt.cli.parameters import Flag, flag_values, flags_of
from nmt.errors import UsageError, UserError, quoted, unknown
from nmt.options import REQUIRED, Option, flag_of, to_toml, toml_line

HELP: Final = ("--help", "-h")
# Options that are read before settings files. A plug-in runs code, so only the user may name it (docs/reference/contract.md).
NOT_IN_FILES: Final = ("config", "dump_config", "debug", "plugin")
# A preset and a corpus stand for other settings, which are printed instead.
NOT_DUMPED: Final = (*NOT_IN_FILES, "quiet", "verbose", "preset", "corpus")


class Layer(NamedTuple):
    """Values by key from one place. origin: the name of the place in messages"""

    origin: str
    values: Mapping[str, Any]


def file_layer(path: str, values: Mapping[str, Any]) -> Layer:
    """The values of a settings file. Raises UserError for a key that only flags can set."""
    for key in NOT_IN_FILES:
        if key in values:
            flag = flag_of(key)
            raise UserError(f"{quoted(path)}: '{key}' cannot be set in a file (use the flag {flag})")
    return Layer(path, values)


@dataclass(frozen=True)
class OptionTable:
    """The options of a command and of its chosen components.

    groups: options by heading of the help: the command's own, and those of each component
    claims: the options that each spelling of a flag may mean, several if several components have the flag
    taken: the names of the command's own options; a key that starts with one of them is always a full path
    chosen: the names of the chosen components and of those inside them, by path
    """

    groups: Mapping[str, Sequence[Option]]
    claims: Mapping[str, Sequence[Flag]]
    taken: frozenset[str]
    chosen: Mapping[str, str]

    @property
    def options(self) -> list[Option]:
        return [option for group in self.groups.values() for option in group]

    @cached_property
    def flags(self) -> Mapping[str, Flag]:
        """The unambiguous flags by spelling."""
        return {spelling: found[0] for spelling, found in self.claims.items() if len(found) == 1}

    def find(self, key: str) -> Option | None:
        """The option with this key, which may omit the kind. Raises UserError if several components have such an option."""
        matches = [option for option in self.options if option.path_key == key]
        matches = matches or [option for option in self.options if key in setting_keys(option, self.taken)]
        if len(matches) > 1:
            keys = " or ".join(to_toml(option.path_key) for option in matches)
            raise UserError(f"setting '{key}' is ambiguous (use {keys})")
        return matches[0] if matches else None


def setting_keys(option: Option, taken: Container[str]) -> list[str]:
    """The keys of an option: its full path and, if unambiguous, its path without the kind."""
    short = option.path_key.partition(".")[2]
    return [option.path_key, short] if short and short.partition(".")[0] not in taken else [option.path_key]


def option_table(
    command: str, own: Mapping[str, Sequence[Option]], layers: Sequence[Layer], argv: Sequence[str] = ()
) -> OptionTable:
    """The options of a command and of its chosen components.

    own: the command's own options by heading; the components come before the last heading
    layers: presets and settings files; the last one that names a component chooses it, unless a flag does
    argv: the command line after the command's name
    Raises UserError if two options of one owner have the same spelling.
    """
    own_options = [option for group in own.values() for option in group]
    taken, flags = frozenset(option.name for option in own_options), flags_of(own_options, f"nmt {command}")

    def choice(option: Option) -> str:
        keys, spellings = setting_keys(option, taken), flags_of([option], taken=taken)
        names = [layer.values[key] for layer in layers for key in reversed(keys) if key in layer.values]
        words = flag_values(argv, {flag for flag in spellings if not option.path or flag not in flags})
        return str([option.default, *names, *words][-1])

    parts, chosen = _options_of_parts(own_options, choice)
    claims = _claims(parts, {*flags, *HELP}, taken)
    for option in chain(*parts.values()):
        short = option.path_key.partition(".")[2]
        spellings = [flag_of(short), *([flag_of(f"no_{short}")] if option.type is bool else [])]
        if all([flag.option for flag in claims.get(spelling, ())] == [option] for spelling in spellings):
            option.key = short
    *first, last = own
    groups = {**{heading: own[heading] for heading in first}, **parts, last: own[last]}
    return OptionTable(groups, {spelling: [flag] for spelling, flag in flags.items()} | claims, taken, chosen)


def _options_of_parts(
    own: Sequence[Option], choice: Callable[[Option], str]
) -> tuple[dict[str, list[Option]], dict[str, str]]:
    """The options of the chosen components by heading, `criterion.decoder sampling`, and the components' names by path."""
    parts, chosen = defaultdict[str, list[Option]](list), dict[str, str]()
    for chooser in filter(lambda option: option.kind, own):
        chosen[chooser.name] = choice(chooser)
        for option in registry.options_within(chooser.kind, chosen[chooser.name], choice, chooser.name):
            parts[f"{option.path} {chosen[option.path]}"].append(option)
            if option.kind:
                chosen[option.path_key] = choice(option)
    return parts, chosen


def _claims(parts: Mapping[str, Sequence[Option]], own: Container[str], taken: Container[str]) -> dict[str, list[Flag]]:
    """The options of components that each spelling of a flag may mean. own: the command's own spellings, which are left out"""
    claims = defaultdict[str, list[Flag]](list)
    for heading, options in parts.items():
        for spelling, flag in flags_of(options, heading, taken).items():
            if spelling not in own:
                claims[spelling].append(flag)
    return claims


@dataclass
class Settings:
    """Values by path key, each with its origin. Later layers override earlier ones: preset, model, --config, flags.

    notes: lines for the log, such as the options of a preset that were left out
    """

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def overlay(self, layer: Layer, table: OptionTable) -> None:
        """Set values. Unknown keys are kept for `convert`. Raises UserError if two keys name the same option."""
        keys: dict[str, str] = {}
        for key, value in layer.values.items():
            option = table.find(key)
            path_key = option.path_key if option else key
            if keys.setdefault(path_key, key) != key:
                raise UserError(
                    f"{layer.origin}: '{quoted(keys[path_key])}' and '{quoted(key)}' are the same setting (drop one of them)"
                )
            self.values[path_key], self.origins[path_key] = value, layer.origin

    def overlay_base(self, base: Layer, table: OptionTable, chosen: Mapping[str, str]) -> None:
        """Set the values of a preset, except those of replaced components. For example, noam's lr would not suit other schedules.

        base: the preset, or the options of a model; table: the options of its components
        chosen: the names of the chosen components by path
        """
        names, keys_by_part = table.chosen, defaultdict[str, list[str]](list)
        for key, value in base.values.items():
            option = table.find(key)
            above = [path for path in names if option and f"{option.path}.".startswith(f"{path}.")]
            replaced = next((path for path in above if names[path] != chosen.get(path)), None)
            if replaced:
                keys_by_part[f"{replaced} {names[replaced]}"].append(key)
            else:
                self.overlay(Layer(base.origin, {key: value}), table)
        for part, keys in keys_by_part.items():
            self.notes.append(f"{base.origin}: its {part} is replaced, so these options are ignored: {', '.join(keys)}")

    def convert(self, options: Sequence[Option]) -> None:
        """Convert every value to its option's type. Raises UsageError for unknown keys and invalid values."""
        known = {key for option in options for key in (option.key, option.path_key)}
        aliases = {alias.replace("-", "_"): option for option in options for alias in option.aliases}
        errors = list[str]()
        for key, origin in self.origins.items():
            if key in aliases and key not in known:
                errors.append(f"{origin}: unknown setting '{quoted(key)}' (use {aliases[key].name})")
            elif key not in known:
                errors.append(f"{origin}: {unknown('setting', key, known.difference(NOT_IN_FILES), '--help')}")
        for option in options:
            if (key := option.path_key) in self.values:
                try:
                    self.values[key] = option.convert(self.values[key], self.origins[key])
                except UserError as error:
                    errors.append(str(error))
        if errors:
            raise UsageError(errors)

    def missing(self, options: Sequence[Option]) -> list[Option]:
        """The required options without a value. Raises UserError for an empty value, for example from an unset shell variable."""
        required = [option for option in options if option.default is REQUIRED]
        for option in required:
            if self.values.get(option.path_key) in ("", ("",)):
                raise UserError(f"{option.label} is empty: {option.help}")
        return [option for option in required if option.path_key not in self.values]

    def dump(self, groups: Mapping[str, Sequence[Option]]) -> str:
        """All settings as TOML that `--config` can read, each with its origin."""
        lines = []
        for heading, options in groups.items():
            rows = [option for option in options if option.name not in NOT_DUMPED or option.path]
            lines += [f"# {heading}"] if rows else []
            for option in rows:
                value = self.values.get(option.path_key, option.default)
                if value is not REQUIRED:
                    lines.append(f"{toml_line(option.key, value)}  # {self.origins.get(option.path_key, 'default')}")
        return "\n".join(lines) + "\n"
