"""A command: its own options, the kinds of parts it takes, and one call that a notebook could make.

Flags are made from options classes, so that a flag, a TOML key and a saved key have one spelling. Which parts are chosen
decides which flags there are: `nmt train --model rnnsearch --help` shows rnnsearch's.
"""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nmt import registry
from nmt.cli.arguments import FLAG, Arguments, flags_of, parse
from nmt.cli.settings import HELP, Layer, OptionTable, Settings, choice_by, option_table, settings_file
from nmt.cli.unknown_words import stray_word, unknown_flag
from nmt.log import log
from nmt.options import COMMAND_LINE, Option, Part, as_dict, make, opt, options_class, options_of

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

    def options(self, kind: str) -> Any:
        """The options object of the chosen part of a kind."""
        return self.by_kind[kind].options

    def build(self, kind: str, *context: Any) -> Any:
        """The object of the chosen part of a kind; see `registry.build`."""
        return registry.build(self.by_kind[kind], *context)

    def as_dict(self, *kinds: str) -> dict[str, Any]:
        """The settings of the parts of some kinds, or of all, by the shortest keys that are unambiguous among them."""
        values: dict[str, Any] = {}
        for kind in kinds or self.by_kind:
            values |= {kind: self.by_kind[kind].name}
            values |= {f"{kind}.{key}": value for key, value in as_dict(self.by_kind[kind].options).items()}
        shorts = {key: key.partition(".")[2] for key in values}
        counts = Counter(short for short in shorts.values() if short and short.partition(".")[0] not in self.taken)
        return {shorts[key] if counts[shorts[key]] == 1 else key: value for key, value in values.items()}


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
        given = parse(argv, flags_of(self.own_options()), not self.positional)
        for plugin in given.texts("plugin"):
            registry.load_plugin(plugin)
        files = [settings_file(path) for path in given.texts("config")]
        table, settings = self._merge(argv, self._preset(given, files), files)
        arguments = parse(argv, table.flags, not self.positional)
        if any(word in HELP for word in arguments.words):
            from nmt.cli.help import show_help  # rich takes its time to import

            show_help(self.name, self.help, table.groups, settings.values)
            return 0
        settings.overlay(Layer(COMMAND_LINE, self._values(arguments, table)), table)
        settings.convert(table.options)
        values = settings.values
        common = make(CommonOptions, values)
        log.quiet = common.quiet
        for line in settings.left_out:
            log.info(line)
        if common.dump_config:
            sys.stdout.write(settings.dump(table.groups))
            return 0
        settings.refuse_missing(table.options)
        options: Any = make(self.options, values)
        parts = {
            kind: registry.choose(kind, values.get(kind, DEFAULTS[kind]), registry.values_below(kind, values))
            for kind in self.kinds
        }
        if not gc.isenabled():  # the start is over, see main
            gc.freeze()
            gc.enable()
        return (self.run(options, Parts(parts, argv, table.taken)) if self.kinds else self.run(options)) or 0

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

    def _preset(self, given: Arguments, files: Sequence[Layer]) -> Layer | None:
        """The preset that the last flag or file names."""
        [option] = options_of(PresetOption)
        names = [option.convert(file.values["preset"], file.origin) for file in files if "preset" in file.values]
        names += map(option.convert, given.texts("preset"))
        if not self.kinds or not names or not names[-1]:
            return None
        preset = registry.find_preset(names[-1])
        return Layer(preset.origin, preset.values)

    def _merge(self, argv: Sequence[str], preset: Layer | None, files: Sequence[Layer]) -> tuple[OptionTable, Settings]:
        """The options with the chosen parts, and the settings of preset and files."""
        groups, own = self._own_groups(), self.own_options()
        taken, flags = frozenset(option.name for option in own), flags_of(own)

        def given(option: Option) -> list[str]:
            return parse(argv, flags_of([option], taken=taken) | flags, not self.positional).texts(option.path_key)

        presets = [preset] if preset else []
        choice = choice_by([*presets, *files], taken, given)
        table, settings = option_table(self.name, groups, choice), Settings()
        if preset:
            chosen = table.chosen(choice)
            of_preset = choice_by([Layer("the chosen parts", chosen), preset], taken, lambda option: ())
            preset_table = option_table(self.name, groups, of_preset)
            settings.overlay_preset(preset, preset_table, preset_table.chosen(of_preset), chosen)
        for file in files:
            settings.overlay(file, table)
        return table, settings

    def _values(self, arguments: Arguments, table: OptionTable) -> dict[str, Any]:
        """The values of flags and of words without a flag, as text, by path key. UserError for a word without meaning."""
        values, words = dict(arguments.values), arguments.words
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
