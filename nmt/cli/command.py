"""A command: its own options, the kinds of parts it takes, and one call that a notebook could make.

Flags are made from options classes, so that a flag, a TOML key and a saved key have one spelling. Which parts are chosen
decides which flags there are: `nmt train --model rnnsearch --help` shows rnnsearch's.
"""

import gc
import importlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from typer.core import TyperCommand

from nmt import registry
from nmt.cli.argv import HELP, Given, read_argv
from nmt.cli.parameters import Flag, flags_of, typer_parameters
from nmt.cli.settings import Layer, OptionTable, Settings, file_layer, option_table
from nmt.cli.unknown_words import missing, name_of_peers, stray_word, unknown_flag, yes_or_no
from nmt.errors import UserError
from nmt.files import json_text
from nmt.log import log
from nmt.options import COMMAND_LINE, Option, Part, as_dict, make, opt, options_class, options_of, read_toml

DEFAULTS: Final = {
    "model": "transformer",
    "criterion": "cross-entropy",
    "optimizer": "adam",
    "schedule": "noam",
    "decoder": "beam",
}
KIND: Final = re.compile(r"^(--(?:no-)?)[^.]+\.")  # at the front of a flag: `--decoder.` or `--no-decoder.`
ALIASES: Final = {"schedule": ("lr-scheduler",), "model": ("type",)}
PRESET: Final = Option("preset", str | None, None, "a named set of options (nmt list preset)", ("arch", "a", "task"))


@options_class
class CommonOptions:
    """The options that every command takes."""

    config: tuple[str, ...] = opt(
        (), "TOML file of settings; a later file wins over an earlier, a flag over both", aliases=("c",)
    )
    plugin: tuple[str, ...] = opt((), "Python file or module that registers parts", aliases=("user-dir",))
    dump_config: bool = opt(False, "print the settings as TOML, each with its origin, and stop")
    quiet: bool = opt(False, "write only warnings and errors to stderr", aliases=("q",))
    verbose: bool = opt(False, "also write details to stderr: the search with its options, device, batch sizes")
    debug: bool = opt(False, "show the traceback of an error")


def start_is_over() -> None:
    """Start the garbage collector, which `main` has stopped; what is imported so far is left out."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def print_json(value: object) -> None:
    """Print a value as JSON."""
    sys.stdout.write(json_text(value))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, which have no LF yet."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


def texts_of(value: Any) -> Sequence[str]:
    """What a command line or a file gives for an option, as texts: none, one or several."""
    return [value] if isinstance(value, str) else value or ()


@dataclass(frozen=True)
class Parts:
    """The chosen parts of a command.

    by_kind: each part with its options
    argv: the command line after the command's name
    taken: the names of the command's own options, which no key of a part begins with
    given: the path keys of all options that a preset, a model, a settings file or a flag sets; the others have defaults
    """

    by_kind: Mapping[str, Part]
    argv: Sequence[str]
    taken: frozenset[str]
    given: frozenset[str] = frozenset()

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
    run: called with an options object, and with Parts when the command has kinds; returns an exit code or None. Its
        docstring is the help
    group: the heading of `nmt --help` that lists it, a key of nmt.cli.commands.GROUPS
    kinds: the kinds of parts whose flags it takes
    positional: names of options that words without a flag give too, in order; `NAME...` takes all that remain. Such words
        name what the command works on: files of text, data, runs or models. Output and settings have flags alone
    more_words: what to write in place of a word too many, for its error
    greedy: whether a flag of any number of values takes all words up to the next flag, so that words without a flag come
        first; if not, it takes one word
    preload: modules that `run` always needs. They are imported before the garbage collector starts, which would slow the
        import of torch by a fifth
    ends_start: whether `run` itself calls `start_is_over`, after it has imported what its options need
    base: from what files and flags give for its own options, further settings below those; None for none
    """

    name: str
    options: type
    run: Callable[..., int | None]
    group: str
    kinds: Sequence[str] = ()
    positional: Sequence[str] = ()
    more_words: str = ""
    greedy: bool = True
    preload: Sequence[str] = ()
    ends_start: bool = False
    base: Callable[[Mapping[str, Any]], Layer | None] | None = None

    @property
    def summary(self) -> str:
        """The help as one paragraph."""
        return " ".join((self.run.__doc__ or "").split())

    def own_groups(self) -> dict[str, list[Option]]:
        """The options that do not belong to a part, by heading of --help."""
        kinds = [
            Option(kind, str, DEFAULTS[kind], f"{kind} by name (nmt list {kind})", ALIASES.get(kind, ()), kind=kind)
            for kind in self.kinds
        ]
        return {
            "Options": options_of(self.options, positional=self.positional),
            "Parts": [*kinds, PRESET] if kinds else [],
            "Common": options_of(CommonOptions),
        }

    def call(self, table: OptionTable, settings: Settings, argv: Sequence[str]) -> int:
        """Run the command with its settings, or print them, and return the exit code."""
        settings.convert(table.options)
        values = settings.values
        common = make(CommonOptions, values)
        log.quiet, log.verbose = common.quiet, common.verbose
        for line in settings.left_out:
            log.info(line)
        if common.dump_config:
            sys.stdout.write(settings.dump(table.groups))
            return 0
        options, parts = self.make_options(table, settings, argv)
        for module in self.preload:
            importlib.import_module(module)
        if not self.ends_start:
            start_is_over()
        return (self.run(options, parts) if self.kinds else self.run(options)) or 0

    def make_options(self, table: OptionTable, settings: Settings, argv: Sequence[str] = ()) -> tuple[Any, Parts]:
        """The options object, and the chosen parts.

        settings: converted
        argv: the command line after the command's name, for errors
        Raises UserError for what does not fit.
        """
        values = settings.values
        if lacking := settings.missing(table.options):
            words = [
                text for option in table.options if option.positional for text in texts_of(values.get(option.path_key))
            ]
            raise missing(self.name, lacking, argv, words, table)
        options: Any = make(self.options, values)
        parts = {
            kind: registry.choose(kind, values.get(kind, DEFAULTS[kind]), registry.values_below(kind, values))
            for kind in self.kinds
        }
        return options, Parts(parts, argv, table.taken, frozenset(values))

    def bases(self, layers: Sequence[Layer]) -> list[Layer]:
        """What stands below files and flags: the preset that the last of them names, and the settings of `base`."""
        bases = []
        names = [PRESET.convert(layer.values["preset"], layer.origin) for layer in layers if "preset" in layer.values]
        if self.kinds and names and names[-1]:
            preset = registry.find_preset(names[-1])
            bases.append(Layer(f"preset {preset.name}", preset.values))
        given = {key: value for layer in layers for key, value in layer.values.items()}
        if self.base is not None:
            try:
                base = self.base(given)
            except UserError:
                if not given.get("help"):
                    raise
                base = None
            bases += [base] if base is not None else []
        return bases

    def settings(self, table: OptionTable, bases: Sequence[Layer], files: Sequence[Layer]) -> Settings:
        """The settings of bases and files. table: of the chosen parts"""
        settings = Settings()
        for base in bases:
            of_base = option_table(self.name, self.own_groups(), [Layer("the chosen parts", table.chosen), base])
            settings.overlay_base(base, of_base, table.chosen)
        for file in files:
            settings.overlay(file, table)
        return settings

    def read(self, file: Layer) -> tuple[OptionTable, Settings]:
        """The options, and their values in a settings file alone, not converted yet."""
        bases = self.bases([file])
        table = option_table(self.name, self.own_groups(), [*bases, file])
        return table, self.settings(table, bases, [file])


class ShellCommand(TyperCommand):
    """A command as typer calls it. The chosen parts decide which flags it has, so its command line is read in two passes."""

    def __init__(self, command: Command) -> None:
        super().__init__(command.name, help=command.summary, context_settings={"help_option_names": HELP})
        self.command = command
        self.table = OptionTable({}, {}, {}, frozenset(), {})  # until the command line is read

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the settings. With --help print the help, and exit."""
        self.argv = list(args)
        try:
            self._read(ctx)
        except UserError as error:
            if not ctx.resilient_parsing:  # while a shell completes a word, the others may be wrong
                raise name_of_peers(error) or error from None
        if ctx.resilient_parsing:
            self.params = [*typer_parameters(self.table.options, self.table.flags)]
        ctx.args = []
        return []

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The flags that fit an unfinished word; `--decoder.alpha` beside `--alpha` only for a word with a dot."""
        spellings = [{*param.opts, *param.secondary_opts} for param in self.get_params(ctx)]
        longer = {flag for flags in spellings for flag in flags if KIND.sub(r"\1", flag) in flags - {flag}}
        items = super().shell_complete(ctx, incomplete)
        return [item for item in items if "." in incomplete or item.value not in longer]

    def invoke(self, ctx: Any) -> int:
        return self.command.call(self.table, self.settings, self.argv)

    def _read(self, ctx: Any) -> None:
        """Read the command line: first which parts are chosen, then the values of all options."""
        command, unfinished = self.command, ctx.resilient_parsing
        files, bases = self._layers(unfinished)
        own = command.own_groups()
        named = partial(_named_part, self.argv, flags_of(chain(*own.values())))
        self.table = option_table(command.name, own, [*bases, *files], named)
        given = read_argv(self.argv, self.table.options, self.table.flags, command.greedy, unfinished)
        self.settings = command.settings(self.table, bases, files)
        if given.values.pop("help", False) and not unfinished:
            from nmt.cli.help import show_help  # rich takes its time to import

            show_help(command.name, command.summary, self.table.groups, self.settings.values)
            ctx.exit()
        self._refuse_unknown(given)
        self.settings.overlay(Layer(COMMAND_LINE, given.values), self.table)

    def _layers(self, unfinished: bool) -> tuple[list[Layer], list[Layer]]:
        """The settings files, and what stands below them. Loads the plug-ins, which may bring options."""
        options = [*chain(*self.command.own_groups().values())]
        flags = flags_of(options)
        given = read_argv(self.argv, options, flags, self.command.greedy, unfinished)
        if given.unknown:  # perhaps of parts, which are not known yet: the words after them may be their values
            given = read_argv(self.argv, [], flags, self.command.greedy, unfinished)
        for plugin in given.values.get("plugin", ()):
            registry.load_plugin(plugin)
        files = [file_layer(path, read_toml(Path(path))) for path in given.values.get("config", ())]
        return files, self.command.bases([*files, Layer(COMMAND_LINE, given.values)])

    def _refuse_unknown(self, given: Given) -> None:
        """Raise UserError for a flag that the command does not have, and for a word without meaning."""
        if given.unknown:
            raise unknown_flag(self.command.name, given.unknown[0], self.argv, self.table)
        after_dashes = self.argv[self.argv.index("--") :] if "--" in self.argv else []
        positional = (given.values.get(option.path_key) for option in self.table.options if option.positional)
        for word in [*(text for value in positional for text in texts_of(value)), *given.words]:
            meant = yes_or_no(self.command.name, word, self.argv, self.table) if word in self.argv else None
            if meant and word not in after_dashes:
                raise meant
        if given.words:
            raise stray_word(self.command.name, given.words[0], self.argv, self.table, self.command.more_words)


def _named_part(argv: Sequence[str], own: Mapping[str, Flag], option: Option) -> str | None:
    """The name of the part that a command line gives for an option. own: the flags of the command itself"""
    flags = flags_of([option], taken={flag.option.name for flag in own.values()} if option.path else ())
    flags = {spelling: flag for spelling, flag in flags.items() if not option.path or spelling not in own}
    name: str | None = read_argv(argv, [], flags, greedy=True, unfinished=True).values.get(option.path_key)
    return name
