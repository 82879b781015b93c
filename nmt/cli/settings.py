"""The settings of a command, merged from a preset, settings files and flags, each with its origin."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nmt.cli.option_table import OptionTable, short_key
from nmt.errors import UserError, quoted, unknown
from nmt.options import REQUIRED, Option, toml_line
from nmt.registry import Preset

# A settings file is read after these. A plug-in runs code, so only a person may name it (docs/contract.md, "Files and folders").
NOT_IN_FILES: Final = ("config", "dump_config", "debug", "plugin")
NOT_DUMPED: Final = (*NOT_IN_FILES, "quiet", "preset")


@dataclass(frozen=True)
class Layer:
    """Values by key from one place. origin: the place, as messages name it"""

    origin: str
    values: Mapping[str, Any]

    def refuse_flags(self) -> None:
        """Raise UserError for a key that is a flag only."""
        for key in NOT_IN_FILES:
            if key in self.values:
                flag = f"--{key}".replace("_", "-")
                raise UserError(f"{quoted(self.origin)}: '{key}' cannot be set in a file (give {flag} as a flag)")


@dataclass
class Settings:
    """Values by path key, each with the place that set it; a later layer wins: preset < --config < flags."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def overlay(self, values: Mapping[str, Any], origin: str, table: OptionTable) -> None:
        """Set values by key. A key that no option has is kept for `refuse_unknown`."""
        for key, value in values.items():
            option = table.find(key)
            path_key = option.path_key if option else key
            self.values[path_key], self.origins[path_key] = value, origin

    def overlay_preset(
        self, preset: Preset, table: OptionTable, names: Mapping[str, str], chosen: Mapping[str, str]
    ) -> list[str]:
        """Set the values of a preset but for those of parts that are replaced: noam's lr is no learning rate for another.

        table: of the preset's parts
        names, chosen: the names of the preset's parts and of the chosen parts, by path
        returns: a line for each part of the preset that is replaced, with the options left out
        """
        left_out: dict[str, list[str]] = {}
        for key, value in preset.values.items():
            option = table.find(key)
            segments = option.path.split(".") if option and option.path else []
            above = [".".join(segments[: end + 1]) for end in range(len(segments))]
            replaced = next((path for path in above if names[path] != chosen.get(path)), None)
            if replaced:
                left_out.setdefault(f"{replaced} {names[replaced]}", []).append(key)
            else:
                self.overlay({key: value}, preset.origin, table)
        return [f"{preset.origin}: left out with its {part}: {', '.join(keys)}" for part, keys in left_out.items()]

    def refuse_unknown(self, table: OptionTable) -> None:
        """Raise UserError for the first key that no option has, with the nearest known key."""
        known = {key for option in table.options for key in (option.key, option.path_key)}
        for key, origin in self.origins.items():
            if key not in known:
                raise UserError(f"{origin}: {unknown('setting', key, known)}")

    def convert(self, options: Iterable[Option]) -> None:
        """Turn every value into its option's type; UserError for one that does not fit."""
        for option in options:
            if (key := option.path_key) in self.values:
                self.values[key] = option.convert(self.values[key], self.origins[key])

    def refuse_missing(self, options: Iterable[Option]) -> None:
        """Raise UserError for the first required option without a value."""
        for option in options:
            if option.default is REQUIRED and option.path_key not in self.values:
                raise UserError(f"{option.label} is missing ({option.help})")

    def dump(self, groups: Mapping[str, Sequence[Option]]) -> str:
        """All settings as TOML, each with its origin, which `--config` can read."""
        lines = []
        for heading, options in groups.items():
            rows = [option for option in options if option.name not in NOT_DUMPED or option.path]
            lines += [f"# {heading}"] if rows else []
            for option in rows:
                value = self.values.get(option.path_key, option.default)
                if value is not REQUIRED:
                    origin = self.origins.get(option.path_key, "default")
                    lines.append(f"{toml_line(option.key, value)}  # {origin}")
        return "\n".join(lines) + "\n"


def chooser(
    layers: Sequence[Layer], taken: Container[str], given: Callable[[Option], str | None]
) -> Callable[[Option], str]:
    """A function from an option that chooses a part to the name of the part.

    layers: values of the preset and of the settings files, the last one first to be asked
    taken: the names of the command's own options
    given: the name that the command line gives for the option, if it does
    """

    def choice(option: Option) -> str:
        if (name := given(option)) is not None:
            return name
        keys = [option.path_key]
        if option.path and short_key(option).partition(".")[0] not in taken:
            keys.append(short_key(option))
        names = [str(layer.values[key]) for layer in reversed(layers) for key in keys if key in layer.values]
        return names[0] if names else str(option.default)

    return choice
