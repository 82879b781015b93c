"""A command: its own options, the kinds of parts it takes, and one call that a notebook could make.

Flags are made from options classes, so that a flag, a TOML key and a saved key are one word. Which parts are chosen
decides which flags there are: `nmt train --model rnnsearch --help` shows rnnsearch's.
"""

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nmt import registry
from nmt.cli.arguments import FLAG, given, one_form
from nmt.cli.peers import PEERS
from nmt.errors import UserError, quoted, unknown
from nmt.log import log
from nmt.options import REQUIRED, Option, Settings, make, opt, options_of, read_toml, to_toml, typed

DEFAULTS: Final = {
    "model": "transformer",
    "criterion": "cross-entropy",
    "optimizer": "adam",
    "schedule": "noam",
    "decoder": "beam",
}
ALIASES: Final = {"schedule": ("lr-scheduler",), "model": ("type",)}
HELP: Final = frozenset(("--help", "-h"))
# What a settings file could not change any more; and a plug-in runs code, so that only a person may name it (contract 12).
NOT_IN_FILES: Final = ("config", "dump_config", "debug", "plugin")


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """The flags that every command takes."""

    config: tuple[str, ...] = opt(
        (), "TOML file of settings; a later file wins over an earlier, a flag over both", aliases=("c",)
    )
    plugin: tuple[str, ...] = opt((), "Python file or module that registers parts", aliases=("user-dir",))
    dump_config: bool = opt(False, "print the settings as TOML, each with its origin, and stop")
    quiet: bool = opt(False, "say nothing on stderr but warnings and errors", aliases=("q",))
    debug: bool = opt(False, "show where in the program an error arose")


@dataclass(frozen=True, kw_only=True)
class PresetOption:
    """The flag of commands that build parts."""

    preset: str | None = opt(None, "a named set of options (nmt list preset)", aliases=("arch", "a", "task"))


@dataclass(frozen=True)
class Parts:
    """The parts chosen for a command, and every setting. argv: the words that say so, after the command's name"""

    settings: Settings
    chosen: Mapping[str, str]
    argv: Sequence[str]

    def options(self, kind: str) -> Any:
        """The options object of the chosen part of a kind."""
        entry = registry.find(kind, self.chosen[kind])
        return make(entry.options, self.settings.values, self.settings.origins)

    def build(self, kind: str, *context: Any) -> Any:
        """The chosen part of a kind; `context` is what its kind is given (see the kind's base.py)."""
        return registry.find(kind, self.chosen[kind]).cls(self.options(kind), *context)


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
        greedy = not self.positional
        peeked = one_form(argv, self._first_options(), greedy)
        for plugin in given(peeked, "--plugin"):
            registry.load_plugin(plugin)
        settings, preset = self._files(peeked)
        chosen = self._choose(peeked, settings)
        flags = self._flags(chosen)
        left_out = _leave_out(preset, settings, chosen) if preset else []
        words = one_form(argv, [option for options in flags.values() for option in options], greedy)
        if not HELP.isdisjoint(words):
            from nmt.cli.help import show_help  # rich takes its time to import

            show_help(self.name, self.help, flags, self.positional, settings.values)
            return 0
        found = self._parse(words, flags)
        settings.overlay(found, "the command line")
        settings.refuse_unknown([*(option.name for options in flags.values() for option in options)])
        common = make(CommonOptions, settings.values, settings.origins)
        log.quiet = common.quiet
        for line in left_out:
            log.info(line)
        if common.dump_config:
            sys.stdout.write(self._dump(settings, flags))
            return 0
        options: Any = make(self.options, settings.values, settings.origins, self.positional)
        parts = Parts(settings, chosen, argv)
        for kind in self.kinds:  # a wrong value is told before any work is done
            parts.options(kind)
        if not gc.isenabled():  # the start is over, see main
            gc.freeze()
            gc.enable()
        return (self.run(options, parts) if self.kinds else self.run(options)) or 0

    def _first_options(self) -> list[Option]:
        """The options that are known before the parts are chosen."""
        own = [option for option in options_of(self.options) if option.name not in self.positional]
        return [*own, *self._part_options(), *options_of(CommonOptions)]

    def _part_options(self) -> list[Option]:
        """The options that choose the parts."""
        kinds = [
            Option(kind, str, DEFAULTS[kind], f"{kind} by name (nmt list {kind})", ALIASES.get(kind, ()))
            for kind in self.kinds
        ]
        return [*kinds, *options_of(PresetOption)] if kinds else []

    def _files(self, argv: Sequence[str]) -> tuple[Settings, registry.Preset | None]:
        """The settings of the preset and of the --config files."""
        settings = Settings.empty()
        tables = [(path, read_toml(Path(path))) for path in given(argv, "--config")]
        options = {option.name: option for option in [*options_of(CommonOptions), *options_of(PresetOption)]}
        named: list[str | None] = []
        for path, table in tables:
            for key in NOT_IN_FILES:
                if key in table:
                    raise UserError(
                        f"{quoted(path)}: '{key}' cannot be set in a file (give {options[key].flag} as a flag)"
                    )
            named += [typed(options["preset"], table["preset"], path)] if "preset" in table else []
        named += [typed(options["preset"], name) for name in given(argv, "--preset")]
        preset = registry.find_preset(named[-1]) if self.kinds and named and named[-1] else None
        if preset:
            settings.overlay(preset.values, preset.origin)
        for path, table in tables:
            settings.overlay(table, path)
        return settings, preset

    def _choose(self, argv: Sequence[str], settings: Settings) -> dict[str, str]:
        chosen = {}
        for kind in self.kinds:
            flags = given(argv, f"--{kind}")
            chosen[kind] = str(flags[-1] if flags else settings.values.get(kind, DEFAULTS[kind]))
            registry.find(kind, chosen[kind])
        return chosen

    def _flags(self, chosen: Mapping[str, str]) -> dict[str, list[Option]]:
        """The options by the heading they stand under in --help; UserError where two have one flag."""
        groups = {"Options": options_of(self.options), "Parts": self._part_options()}
        parts = {f"{kind} {name}": options_of(registry.find(kind, name).options) for kind, name in chosen.items()}
        groups = groups | parts | {"Common": options_of(CommonOptions)}
        owners = {"--help": f"nmt {self.name}", "-h": f"nmt {self.name}"}
        for heading in sorted(groups, key=lambda heading: heading in parts):  # it is the part that has to be changed
            owner = heading if heading in parts else f"nmt {self.name}"
            for option in groups[heading]:
                for spelling in option.spellings:
                    if spelling in owners:
                        raise UserError(
                            f"flag '{spelling}' of {owner} is also one of {owners[spelling]} (rename one of them)"
                        )
                    owners[spelling] = owner
        return groups

    def _parse(self, words: list[str], flags: Mapping[str, list[Option]]) -> dict[str, Any]:
        """The flags that were given, and the values without one, as text. words: in one form; UserError for an odd one."""
        options = {option.name: option for group in flags.values() for option in group}
        known = {
            spelling: option
            for option in options.values()
            if option.name not in self.positional
            for spelling in (option.flag, option.spellings[-1])  # one_form has left no other
        }
        found: dict[str, Any] = {}
        end = words.index("--") if "--" in words else len(words)
        plain: list[str] = []
        for word in words[:end]:
            flag, _, value = word.partition("=")
            if flag in known:
                name, count = known[flag].name, known[flag].count
                if known[flag].type is bool:
                    found[name] = flag == known[flag].flag
                else:
                    found[name] = value if count == 1 else [*found.get(name, []), value]
            elif FLAG.match(word):
                raise self._unknown_flag(flag, words, options)
            else:
                plain.append(word)
        plain += words[end + 1 :]
        for name in self.positional:
            taken = plain[: options[name].count]
            plain = plain[len(taken) :]
            if taken:
                found[name] = taken[0] if options[name].count == 1 else taken
        if plain:
            raise self._stray(plain[0], words, options)
        return found

    def _stray(self, word: str, words: list[str], options: Mapping[str, Option]) -> UserError:
        if told := self._of_peers(words):
            return told
        if self.positional:
            return UserError(f"'{quoted(word)}' is a word too many (nmt {self.name} --help)")
        file = "name a file with --input; " if "input" in options else ""
        return UserError(f"'{quoted(word)}' stands without a flag ({file}nmt {self.name} --help)")

    def _unknown_flag(self, flag: str, words: list[str], options: Mapping[str, Option]) -> UserError:
        if told := self._of_peers(words):
            return told
        if flag in [options[name].flag for name in self.positional]:
            plain = " ".join(name.upper() for name in self.positional)
            return UserError(f"unknown flag '{flag}' (its value is given without a flag: nmt {self.name} {plain})")
        if parts := self._parts_with(flag):
            return UserError(f"unknown flag '{flag}' (it is one of {', '.join(parts)})")
        own = [option for option in options.values() if option.name not in self.positional]
        return unknown("flag", flag, [spelling for option in own for spelling in option.spellings])

    def _parts_with(self, flag: str) -> list[str]:
        """The parts that were not chosen and would have a flag, as flags that choose them."""
        return [
            f"--{kind} {name}"
            for kind in self.kinds
            for name in registry.names(kind)
            if any(flag in option.spellings for option in options_of(registry.find(kind, name).options))
        ]

    def _of_peers(self, words: list[str]) -> UserError | None:
        """What a flag of another toolkit is called here, if one is among the words."""
        for word in words:
            flag = word.partition("=")[0]
            if told := PEERS.get(self.name, {}).get(flag):
                return UserError(f"unknown flag '{flag}' (here: {told})")
        return None

    def _dump(self, settings: Settings, flags: Mapping[str, list[Option]]) -> str:
        skipped = {*NOT_IN_FILES, "quiet", "preset"}
        lines = []
        for heading, options in flags.items():
            rows = [option for option in options if option.name not in skipped]
            if rows:
                lines.append(f"# {heading}")
            for option in rows:
                origin = settings.origins.get(option.name)
                if origin is None and option.default is REQUIRED:
                    continue
                value = typed(option, settings.values[option.name], origin) if origin else option.default
                lines.append(f"{option.name} = {to_toml(value)}  # {origin or 'default'}")
        return "\n".join(lines) + "\n"


def _leave_out(preset: registry.Preset, settings: Settings, chosen: Mapping[str, str]) -> list[str]:
    """Drop the preset's options of those of its parts that were replaced: noam's lr is no learning rate for another.

    returns: a line to tell for each such part
    """
    told = []
    for kind, name in chosen.items():
        own = preset.values.get(kind, name)
        if own != name:
            names = [option.name for option in options_of(registry.find(kind, own).options)]
            dropped = settings.drop(names, preset.origin)
            if dropped:
                told.append(f"{preset.origin}: left out with its {kind} {own}: {', '.join(dropped)}")
    return told
