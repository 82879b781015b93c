"""A command: its own options, the kinds of components it takes, and one call that a notebook could make.

Flags are made from options classes, so that a flag, a TOML key and a saved key have one spelling. Which components are chosen
decides which flags there are: `nmt train --model rnnsearch --help` shows rnnsearch's.
"""

import gc
import importlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from typer.core import TyperCommand
from typer.exceptions import TyperException

from nmt import registry
from nmt.cli.parameters import FLAG, LETTER, OF_FLAG, Flag, flags_of, name_of, spread_values, typer_parameters
from nmt.cli.settings import HELP, Layer, OptionTable, Settings, file_layer, option_table
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
        (), "TOML file of settings; a later file wins over an earlier, a flag over both", aliases=("c",), metavar="FILE"
    )
    plugin: tuple[str, ...] = opt(
        (), "Python file or module that registers components", aliases=("user-dir",), metavar="FILE"
    )
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
    """The chosen components of a command.

    by_kind: each component with its options
    argv: the command line after the command's name
    taken: the names of the command's own options, which no key of a component begins with
    given: where each option was set, by path key: a preset, a model, a settings file or a flag; the others have defaults
    """

    by_kind: Mapping[str, Part]
    argv: Sequence[str]
    taken: frozenset[str]
    given: Mapping[str, str] = field(default_factory=dict)

    def build(self, kind: str, *context: Any) -> Any:
        """The object of the chosen component of a kind; see `registry.build`."""
        return registry.build(self.by_kind[kind], *context)

    def as_dict(self, *kinds: str) -> dict[str, Any]:
        """The settings of the components of some kinds, or of all, by the shortest keys that are unambiguous among them."""
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
    examples: three command lines for its help, each at most 78 characters, with a comment
    headings: the order of the headings of its help; headings that are not named follow
    kinds: the kinds of components whose flags it takes
    positional: names of options that words without a flag give too, in order; `NAME...` takes all that remain. Such words
        name what the command works on: files of text, data, runs or models. Output and settings have flags alone
    more_words: what to write in place of a word too many, for its error
    greedy: whether a flag of any number of values takes all words up to the next flag, so that words without a flag come
        first; if not, it takes one word
    preload: modules that `run` always needs. They are imported before the garbage collector starts, which would slow the
        import of torch by a fifth
    ends_start: whether `run` itself calls `start_is_over`, after it has imported what its options need
    base: from what files and flags give for its own options, further settings below those; None for none
    defaults: the same for settings below presets
    """

    name: str
    options: type
    run: Callable[..., int | None]
    group: str
    examples: Sequence[str] = ()
    headings: Sequence[str] = ("Input and output",)
    kinds: Sequence[str] = ()
    positional: Sequence[str] = ()
    more_words: str = ""
    greedy: bool = True
    preload: Sequence[str] = ()
    ends_start: bool = False
    base: Callable[[Mapping[str, Any]], Layer | None] | None = None
    defaults: Callable[[Mapping[str, Any]], Layer | None] | None = None

    @property
    def summary(self) -> str:
        """The help as one paragraph."""
        return " ".join((self.run.__doc__ or "").split())

    def own_groups(self) -> dict[str, list[Option]]:
        """The options that do not belong to a component, by heading of --help."""
        kinds = [
            Option(kind, str, DEFAULTS[kind], f"{kind} by name (nmt list {kind})", ALIASES.get(kind, ()), kind=kind)
            for kind in self.kinds
        ]
        return {
            "Options": options_of(self.options, positional=self.positional),
            "Components": [*kinds, PRESET] if kinds else [],
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
        """The options object, and the chosen components.

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
        return options, Parts(parts, argv, table.taken, settings.origins)

    def bases(self, layers: Sequence[Layer]) -> list[Layer]:
        """What stands below files and flags: `defaults`, the preset that the last of them names, and `base`."""
        bases, given = list[Layer](), {key: value for layer in layers for key, value in layer.values.items()}
        names = [PRESET.convert(layer.values["preset"], layer.origin) for layer in layers if "preset" in layer.values]
        if self.kinds and names and names[-1]:
            preset = registry.find_preset(names[-1])
            bases.append(Layer(f"preset {preset.name}", preset.values))
        for further, place in ((self.base, len(bases)), (self.defaults, 0)):
            with suppress(UserError) if given.get("help") else nullcontext():
                if further is not None and (layer := further(given)) is not None:
                    bases.insert(place, layer)
        return bases

    def has_defaults(self, layers: Sequence[Layer]) -> bool:
        """Whether what files and flags give makes `defaults` set something."""
        given = {key: value for layer in layers for key, value in layer.values.items()}
        with suppress(UserError) if given.get("help") else nullcontext():
            return self.defaults is not None and self.defaults(given) is not None
        return False

    def read(
        self, files: Sequence[Layer], flags: Mapping[str, Any] = registry.NO_VALUES, argv: Sequence[str] = ()
    ) -> tuple[OptionTable, Settings]:
        """The options, and their values of bases and files, not converted yet.

        flags: the values of the command line for the command's own options
        argv: the command line after the command's name, whose flags choose components
        """
        bases, own = self.bases([*files, Layer(COMMAND_LINE, flags)]), self.own_groups()
        table, settings = option_table(self.name, own, [*bases, *files], argv), Settings()
        for base in bases:
            of_base = option_table(self.name, own, [Layer("the chosen components", table.chosen), base])
            settings.overlay_base(base, of_base, table.chosen)
        for file in files:
            settings.overlay(file, table)
        return table, settings


class HelpRequest(NamedTuple):
    """A question for help. others: the other words; is_short: `-h`; topic: KIND of `--help KIND`"""

    others: list[str]
    is_short: bool
    topic: str


def help_request(argv: Sequence[str], kinds: Sequence[str]) -> HelpRequest | None:
    """What a command line asks for by -h, --help or --help KIND; None if by none of them."""
    at = next((i for i, word in enumerate(argv) if word in (*HELP, "--")), len(argv))
    if argv[at:] == [] or argv[at] == "--":
        return None
    topic = argv[at + 1] if argv[at + 1 : at + 2] and argv[at + 1] in kinds else ""
    return HelpRequest([*argv[:at], *argv[at + (2 if topic else 1) :]], argv[at] == "-h", topic)


class ShellCommand(TyperCommand):
    """A command as typer calls it.

    The chosen components decide which parameters it has, so its arguments are read twice: for its own options, and for all.
    """

    def __init__(self, command: Command) -> None:
        settings = {"help_option_names": HELP, "ignore_unknown_options": True, "allow_extra_args": True}
        super().__init__(command.name, help=command.summary, context_settings=settings)
        self.command = command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the settings. With --help or -h print the help, and exit."""
        self.argv, asked = list(args), None if ctx.resilient_parsing else help_request(args, self.command.kinds)
        if asked:
            self.argv = asked.others
        try:
            self._read(ctx, asked)
        except UserError as error:
            if not ctx.resilient_parsing:  # while a shell completes a word, the others may be wrong
                raise name_of_peers(error) or error from None
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

    def _read(self, ctx: Any, asked: HelpRequest | None) -> None:
        command = self.command
        values, words = self._own_values(ctx)
        if plugins := values.get("plugin", ()):
            for plugin in plugins:
                registry.load_plugin(plugin)
            values, words = self._own_values(ctx)  # again: a plug-in may bring options
        files = [file_layer(path, read_toml(Path(path))) for path in values.get("config", ())]
        self.table, self.settings = command.read(files, values, self.argv)
        if command.kinds:
            values, words = self._parse(ctx, self.table.options, self.table.flags)
            if command.has_defaults([*files, Layer(COMMAND_LINE, values)]):  # for DATA, whose word is known only now
                self.table, self.settings = command.read(files, values, self.argv)
                values, words = self._parse(ctx, self.table.options, self.table.flags)
        if asked:
            self._show_help(asked)
            ctx.exit()
        self._refuse_unknown(values, words)
        self.settings.overlay(Layer(COMMAND_LINE, values), self.table)

    def _show_help(self, asked: HelpRequest) -> None:
        from nmt.cli.help import command_sections, show_component_help, show_help

        command, values = self.command, self.settings.values
        if asked.topic:
            show_component_help(self.table, asked.topic, values)
        else:
            sections = command_sections(self.table, command.headings)
            kinds = None if asked.is_short else command.kinds
            show_help(command.name, command.summary, command.examples, sections, values, kinds)

    def _own_values(self, ctx: Any) -> tuple[dict[str, Any], list[str]]:
        """See `_parse`; of the command's own options. Not of words where a flag of a component may take them as its values."""
        options = list(chain(*self.command.own_groups().values()))
        if self.command.kinds:
            options = [option for option in options if not option.positional]
        return self._parse(ctx, options, flags_of(options))

    def _parse(
        self, ctx: Any, options: Sequence[Option], flags: Mapping[str, Flag]
    ) -> tuple[dict[str, Any], list[str]]:
        """The values of the options that the command line gives, as text by path key, and the words that belong to none."""
        self.params = [*typer_parameters(options, flags)]
        end = self.argv.index("--") if "--" in self.argv else len(self.argv)
        unknown = [word for word in self.argv[:end] if LETTER.match(word) and word[:2] not in (*flags, *HELP)]
        argv = [*(word for word in self.argv[:end] if word not in unknown), *self.argv[end:]]
        try:
            found, words, _ = self.make_parser(ctx).parse_args(
                spread_values(argv, flags, self.command.greedy, ctx.resilient_parsing)
            )
        except TyperException as error:
            raise UserError(error.format_message()) from None
        values = {"help": found["help"]} if "help" in found else {}
        for option in options:
            of_flag, of_words = (found.get(name_of(option) + ending) for ending in (OF_FLAG, ""))
            if option.count is None:
                given: Any = [*texts_of(of_flag), *texts_of(of_words)] or None
            else:
                if of_flag is not None and of_words is not None:  # given twice: the word is one too many
                    words = [of_words, *words]
                given = of_words if of_flag is None else of_flag
            if given is not None:
                values[option.path_key] = given
        return values, [*words, *unknown]

    def _refuse_unknown(self, values: Mapping[str, Any], words: Sequence[str]) -> None:
        """Raise UserError for a flag that the command does not have, and for a word without meaning."""
        after_dashes = self.argv[self.argv.index("--") :] if "--" in self.argv else []
        positional = (values.get(option.path_key) for option in self.table.options if option.positional)
        texts = [text for value in positional for text in texts_of(value)]
        for word in [*(text for text in texts if text in self.argv), *words]:
            if FLAG.match(word) and word not in after_dashes:
                raise unknown_flag(self.command.name, word, self.argv, self.table)
            if word not in after_dashes and (error := yes_or_no(self.command.name, word, self.argv, self.table)):
                raise error
        if words:
            raise stray_word(self.command.name, words[0], self.argv, self.table, self.command.more_words)
