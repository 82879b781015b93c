"""A command: its own options, the kinds of parts it takes, and one call that a notebook could make.

Flags are made from options classes, so that a flag, a TOML key and a saved key have one spelling. Which parts are chosen
decides which flags there are: `nmt train --model rnnsearch --help` shows rnnsearch's.
"""

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nmt import registry
from nmt.cli.arguments import FLAG, Arguments, Flag, flags_of, parse
from nmt.cli.option_table import HELP, OptionTable, option_table, paths_of
from nmt.cli.settings import Layer, Settings, chooser
from nmt.cli.unknown_words import stray_word, unknown_flag
from nmt.log import log
from nmt.options import (
    COMMAND_LINE,
    Option,
    Part,
    as_dict,
    make,
    opt,
    options_class,
    options_of,
    read_toml,
    short_keys,
)

DEFAULTS: Final = {
    "model": "transformer",
    "criterion": "cross-entropy",
    "optimizer": "adam",
    "schedule": "noam",
    "decoder": "beam",
}
ALIASES: Final = {"schedule": ("lr-scheduler",), "model": ("type",)}


@options_class
class CommonOptions:
    """The options that every command takes."""

    config: tuple[str, ...] = opt(
        (), "TOML file of settings; a later file wins over an earlier, a flag over both", aliases=("c",)
    )
    plugin: tuple[str, ...] = opt((), "Python file or module that registers parts", aliases=("user-dir",))
    dump_config: bool = opt(False, "print the settings as TOML, each with its origin, and stop")
    quiet: bool = opt(False, "write only warnings and errors to stderr", aliases=("q",))
    debug: bool = opt(False, "show the traceback of an error")


@options_class
class PresetOption:
    """The option of commands that build parts."""

    preset: str | None = opt(None, "a named set of options (nmt list preset)", aliases=("arch", "a", "task"))


@dataclass(frozen=True)
class Parts:
    """The chosen parts of a command.

    by_kind: each part with its options
    argv: the command line after the command's name
    taken: the names of the command's own options, which no key of a part begins with
    """

    by_kind: Mapping[str, Part]
    argv: Sequence[str]
    taken: frozenset[str]

    @property
    def chosen(self) -> dict[str, str]:
        """The names of the parts, by kind."""
        return {kind: part.name for kind, part in self.by_kind.items()}

    def part(self, kind: str) -> Part:
        return self.by_kind[kind]

    def options(self, kind: str) -> Any:
        """The options object of the chosen part of a kind."""
        return self.by_kind[kind].options

    def build(self, kind: str, *context: Any) -> Any:
        """The object of the chosen part of a kind; see `registry.build`."""
        return registry.build(self.by_kind[kind], *context)

    def as_dict(self, *kinds: str) -> dict[str, Any]:
        """The settings of the parts of some kinds, or of all, as a settings file has them."""
        values: dict[str, Any] = {}
        for kind in kinds or self.by_kind:
            values |= {kind: self.by_kind[kind].name}
            values |= {f"{kind}.{key}": value for key, value in as_dict(self.by_kind[kind].options).items()}
        keys = short_keys(values, self.taken)
        return {keys[key]: value for key, value in values.items()}


@dataclass(frozen=True)
class Command:
    """A command of `nmt`.

    options: its own options class
    run: called with an options object, and with Parts when the command has kinds; returns an exit code or None
    kinds: the kinds of parts whose flags it takes
    positional: names of options that are given without a flag, in order
    """

    name: str
    help: str
    options: type
    run: Callable[..., int | None]
    kinds: Sequence[str] = ()
    positional: Sequence[str] = ()

    def invoke(self, argv: Sequence[str]) -> int:
        """Parse, merge settings (preset < --config < flags), and run."""
        first = parse(argv, flags_of(self.own_options()), self._greedy)
        for plugin in first.texts("plugin"):
            registry.load_plugin(plugin)
        files = [Layer(path, read_toml(Path(path))) for path in first.texts("config")]
        preset = self._preset(first, files)
        table, settings, left_out = self._merge(argv, preset, files)
        arguments = parse(argv, table.flags, self._greedy)
        if any(word in HELP for word in arguments.words):
            from nmt.cli.help import show_help  # rich takes its time to import

            show_help(self.name, self.help, table.groups, settings.values)
            return 0
        settings.overlay(self._values(arguments, table), COMMAND_LINE, table)
        settings.refuse_unknown(table)
        settings.convert(table.options)
        common = make(CommonOptions, settings.values)
        log.quiet = common.quiet
        for line in left_out:
            log.info(line)
        if common.dump_config:
            sys.stdout.write(settings.dump(table.groups))
            return 0
        settings.refuse_missing(table.options)
        options: Any = make(self.options, settings.values)
        values = settings.values
        parts = {
            kind: registry.choose(kind, values.get(kind, DEFAULTS[kind]), registry.values_below(kind, values))
            for kind in self.kinds
        }
        if not gc.isenabled():  # the start is over, see main
            gc.freeze()
            gc.enable()
        return (self.run(options, Parts(parts, argv, table.taken)) if self.kinds else self.run(options)) or 0

    @property
    def _greedy(self) -> bool:
        return not self.positional

    def own_options(self) -> list[Option]:
        """The options that do not belong to a part."""
        return [option for options in self._own_groups().values() for option in options]

    def _own_groups(self) -> dict[str, list[Option]]:
        kinds = [
            Option(kind, str, DEFAULTS[kind], f"{kind} by name (nmt list {kind})", ALIASES.get(kind, ()), kind=kind)
            for kind in self.kinds
        ]
        return {
            "Options": options_of(self.options, positional=self.positional),
            "Parts": [*kinds, *options_of(PresetOption)] if kinds else [],
            "Common": options_of(CommonOptions),
        }

    def _preset(self, first: Arguments, files: Sequence[Layer]) -> registry.Preset | None:
        """The preset that the last flag or file names."""
        option = options_of(PresetOption)[0]
        names: list[str | None] = []
        for file in files:
            file.refuse_flags()
            names += [option.convert(file.values["preset"], file.origin)] if "preset" in file.values else []
        names += [option.convert(name) for name in first.texts("preset")]
        return registry.find_preset(names[-1]) if self.kinds and names and names[-1] else None

    def _merge(
        self, argv: Sequence[str], preset: registry.Preset | None, files: Sequence[Layer]
    ) -> tuple[OptionTable, Settings, list[str]]:
        """The options with the chosen parts, the settings of preset and files, and what of the preset is left out."""
        groups, own = self._own_groups(), self.own_options()
        taken = [option.name for option in own]
        flags = flags_of(own)

        def given(option: Option) -> str | None:
            spellings = [spelling for path in paths_of(option, taken) for spelling in option.spellings(path)]
            more = {spelling: Flag(option, False) for spelling in spellings}
            texts = parse(argv, more | flags, self._greedy).texts(option.path_key)
            return texts[-1] if texts else None

        def table_of(choice: Callable[[Option], str]) -> OptionTable:
            kinds = {option.kind: choice(option) for option in own if option.kind}
            return option_table(self.name, groups, kinds, choice)

        presets = [Layer(preset.origin, preset.values)] if preset else []
        choice = chooser([*presets, *files], taken, given)
        table, settings, left_out = table_of(choice), Settings(), list[str]()
        if preset:
            chosen = _names(table, choice)
            of_preset = chooser([Layer("the chosen parts", chosen), *presets], taken, lambda option: None)
            preset_table = table_of(of_preset)
            left_out = settings.overlay_preset(preset, preset_table, _names(preset_table, of_preset), chosen)
        for file in files:
            settings.overlay(file.values, file.origin, table)
        return table, settings, left_out

    def _values(self, arguments: Arguments, table: OptionTable) -> dict[str, Any]:
        """The values of flags and of words without a flag, as text, by path key. UserError for a word without meaning."""
        values = dict(arguments.values)
        words = arguments.words
        for word in words:
            if FLAG.match(word):
                raise unknown_flag(self.name, word.partition("=")[0], words, table)
        plain = [*words, *arguments.after_dashes]
        for option in table.options:
            taken = plain[: option.count] if option.positional else []
            plain = plain[len(taken) :]
            if taken:
                values[option.path_key] = taken[0] if option.count == 1 else taken
        if plain:
            raise stray_word(self.name, plain[0], [*words, *arguments.after_dashes], table)
        return values


def _names(table: OptionTable, choice: Callable[[Option], str]) -> dict[str, str]:
    """The names of the chosen parts and of those within them, by path."""
    return {option.path_key: choice(option) for option in table.options if option.kind}
