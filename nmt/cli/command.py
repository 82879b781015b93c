"""A command: its own options, the kinds of parts it takes, and one call that a notebook could make.

Flags are made from options classes, so that a flag, a TOML key and a saved key are one word. Which parts are chosen
decides which flags there are: `nmt train --model rnnsearch --help` shows rnnsearch's.
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer
from rich.markup import escape

from nmt import registry
from nmt.errors import UserError, unknown
from nmt.log import log
from nmt.options import REQUIRED, Option, Settings, convert, make, opt, options_of, read_toml, to_toml

DEFAULTS: Final = {
    "model": "transformer",
    "criterion": "cross-entropy",
    "optimizer": "adam",
    "schedule": "noam",
    "decoder": "beam",
}
UsageError: Final = cast(type[Exception], typer.BadParameter.__mro__[1])  # click's, which typer keeps to itself


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
    """The parts chosen for a command, and every setting."""

    settings: Settings
    chosen: Mapping[str, str]

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
        argv = self._spread(argv)
        for plugin in _peek(argv, CommonOptions, "plugin"):
            registry.load_plugin(plugin)
        settings = self._files(argv)
        chosen = self._choose(argv, settings)
        flags = self._flags(chosen)
        given = self._parse(argv, flags, settings)
        if given is None:
            return 0
        for plugin in make(CommonOptions, settings.values).plugin:  # named in a settings file
            registry.load_plugin(plugin)
        settings.overlay(given, "the command line")
        settings.refuse_unknown([*(option.name for options in flags.values() for option in options)])
        common = make(CommonOptions, settings.values, settings.origins)
        log.quiet = common.quiet
        if common.dump_config:
            sys.stdout.write(self._dump(settings, flags))
            return 0
        options: Any = make(self.options, settings.values, settings.origins)
        if not self.kinds:
            return self.run(options) or 0
        parts = Parts(settings, chosen)
        for kind in self.kinds:  # a wrong value is told before any work is done
            parts.options(kind)
        return self.run(options, parts) or 0

    def _own_options(self) -> list[Option]:
        presets = options_of(PresetOption) if self.kinds else []
        return [*options_of(self.options), *presets, *options_of(CommonOptions)]

    def _spread(self, argv: Sequence[str]) -> list[str]:
        """`--train A B` as `--train A --train B`, which is what the parser reads."""
        many = {flag for option in self._own_options() if option.many for flag in _flags_of(option)}
        result: list[str] = []
        current: str | None = None
        for word in argv:
            if word.startswith("-") and word != "-":
                current = word if word in many else None
                result.append(word)
            elif current is not None and result[-1] != current:
                result += [current, word]
            else:
                result.append(word)
        return result

    def _files(self, argv: list[str]) -> Settings:
        """The settings of the preset and of the --config files."""
        settings = Settings.empty()
        tables = [(path, read_toml(Path(path))) for path in _peek(argv, CommonOptions, "config")]
        named = [table["preset"] for _, table in tables if "preset" in table]
        if self.kinds:
            named += _peek(argv, PresetOption, "preset")
        for _, table in tables:
            for plugin in table.get("plugin", ()):
                registry.load_plugin(plugin)
        if named:
            found = registry.find_preset(str(named[-1]))
            settings.overlay(found.values, f"preset {found.name}")
        for path, table in tables:
            settings.overlay(table, path)
        return settings

    def _choose(self, argv: list[str], settings: Settings) -> dict[str, str]:
        chosen = {}
        for kind in self.kinds:
            flags = _peek_flag(argv, {f"--{kind}"})
            chosen[kind] = str(flags[-1] if flags else settings.values.get(kind, DEFAULTS[kind]))
            registry.find(kind, chosen[kind])
        return chosen

    def _flags(self, chosen: Mapping[str, str]) -> dict[str, list[Option]]:
        """The options by the heading they stand under in --help."""
        groups: dict[str, list[Option]] = {"Options": options_of(self.options)}
        if chosen:
            kinds = [Option(kind, str, DEFAULTS[kind], f"{kind} by name (nmt list {kind})", ()) for kind in chosen]
            groups["Parts"] = [*kinds, *options_of(PresetOption)]
        owners: dict[str, str] = {option.name: f"nmt {self.name}" for options in groups.values() for option in options}
        for kind, name in chosen.items():
            groups[f"{kind}: {name}"] = options_of(registry.find(kind, name).options)
            for option in groups[f"{kind}: {name}"]:
                if option.name in owners:
                    raise UserError(
                        f"option '{option.name}' of {kind} '{name}' is also one of {owners[option.name]} (rename one of them)"
                    )
                owners[option.name] = f"{kind} '{name}'"
        groups["Common"] = options_of(CommonOptions)
        return groups

    def _parse(self, argv: list[str], flags: Mapping[str, list[Option]], settings: Settings) -> dict[str, Any] | None:
        """The flags that were given, as text; None when help was asked for."""
        given: dict[str, Any] = {}

        def take(**values: Any) -> None:
            given.update({key: value for key, value in values.items() if value is not None and value != []})

        parameters = [
            self._parameter(option, heading, settings) for heading, options in flags.items() for option in options
        ]
        take.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        take.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app = typer.Typer(
            add_completion=False, rich_markup_mode="rich", context_settings={"help_option_names": ["--help", "-h"]}
        )
        app.command(name=self.name, help=self.help)(take)
        asked_for_help = not {"--help", "-h"}.isdisjoint(argv)
        try:
            app(argv, standalone_mode=False, prog_name=f"nmt {self.name}")
        except UsageError as error:
            raise self._usage(error, flags) from None
        return None if asked_for_help else given

    def _usage(self, error: Exception, flags: Mapping[str, list[Option]]) -> UserError:
        flag = getattr(error, "option_name", None)
        if type(error).__name__ == "NoSuchOption" and flag:
            return unknown("flag", flag, [name for options in flags.values() for o in options for name in _flags_of(o)])
        return UserError(f"{error.format_message()} (nmt {self.name} --help)")  # type: ignore[attr-defined]

    def _parameter(self, option: Option, heading: str, settings: Settings) -> inspect.Parameter:
        kind: Any = bool if option.type is bool else list[str] if option.many else str
        default = settings.values.get(option.name, option.default)
        shown = "required" if default is REQUIRED else f"default: {_shown(default)}"
        told = escape(f"{option.help} [{shown}]")
        if option.name in self.positional:
            info = typer.Argument(help=told, show_default=False, metavar=option.name.upper())
        else:
            names = _flags_of(option)
            if option.type is bool:
                names = [f"{option.flag}/--no-{option.flag[2:]}", *names[1:]]
            metavar = None if option.type is bool else option.type_name
            info = typer.Option(*names, help=told, show_default=False, metavar=metavar, rich_help_panel=heading)
        return inspect.Parameter(
            option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info]
        )

    def _dump(self, settings: Settings, flags: Mapping[str, list[Option]]) -> str:
        skipped = {"dump_config", "config", "debug", "quiet", "preset"}
        lines = []
        for heading, options in flags.items():
            rows = [option for option in options if option.name not in skipped]
            if rows:
                lines.append(f"# {heading}")
            for option in rows:
                given = option.name in settings.values
                if not given and option.default is REQUIRED:
                    continue
                value = convert(settings.values[option.name], option.type) if given else option.default
                lines.append(f"{option.name} = {to_toml(value)}  # {settings.origins.get(option.name, 'default')}")
        return "\n".join(lines) + "\n"


def _flags_of(option: Option) -> list[str]:
    """The spellings of an option on the command line, its own first."""
    aliases = [f"-{alias}" if len(alias) == 1 else f"--{alias}" for alias in option.aliases]
    return [option.flag, *aliases]


def _peek(argv: Sequence[str], owner: type, name: str) -> list[str]:
    """The values that a flag will have, read before all flags are known."""
    option = next(option for option in options_of(owner) if option.name == name)
    return _peek_flag(argv, set(_flags_of(option)))


def _peek_flag(argv: Sequence[str], spellings: set[str]) -> list[str]:
    found = []
    for word, following in zip(argv, [*argv[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name in spellings:
            found.append(value if equals else following)
    return found


def _shown(default: Any) -> str:
    if default is None or default == ():
        return "none"
    if isinstance(default, tuple | list):
        return " ".join(str(part) for part in default)
    return ("yes" if default else "no") if isinstance(default, bool) else str(default)
